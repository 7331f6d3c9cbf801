//! A progress bar on a terminal, nothing on a pipe.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over `bytes`, with rate and time left; without them where nobody knows how many come. It is drawn on stderr, and
/// only where that is a terminal.
pub(super) fn bytes(verb: &'static str, bytes: Option<u64>) -> ProgressBar {
    let template = match bytes {
        Some(_) => "{msg} {wide_bar} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta} left",
        None => "{msg} {spinner} {bytes} {binary_bytes_per_sec}",
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar =
        bytes.map_or_else(ProgressBar::new_spinner, ProgressBar::new).with_style(style).with_message(verb);
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}
