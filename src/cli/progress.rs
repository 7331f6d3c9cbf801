//! A progress bar on a terminal, nothing on a pipe.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over `bytes`, with rate and time left. It is drawn on stderr, and only where that is a terminal.
pub(super) fn bytes(verb: &'static str, bytes: u64) -> ProgressBar {
    drawn(
        ProgressBar::new(bytes),
        verb,
        "{msg} {wide_bar} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta} left",
    )
}

/// A count of bytes that come, where nobody knows how many; else as [`bytes`].
pub(super) fn stream(verb: &'static str) -> ProgressBar {
    drawn(ProgressBar::new_spinner(), verb, "{msg} {spinner} {bytes} {binary_bytes_per_sec}")
}

fn drawn(bar: ProgressBar, verb: &'static str, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = bar.with_style(style).with_message(verb);
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}
