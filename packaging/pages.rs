//! Makes the man pages and the shell completions of both programs, of the descriptions that their `--help` shows:
//! `cargo run --example pages -- FOLDER DATE`, DATE being that of the release, such as 2026-11-30. They go where a prefix
//! such as /usr/local has them: FOLDER/share/man and so on.

#[allow(dead_code, reason = "only what is described is used, not what is given")]
#[path = "../mount-helper/args.rs"]
mod helper;
#[allow(dead_code, reason = "only what is described is used, not what is given")]
#[path = "../src/cli/args.rs"]
mod program;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

fn main() -> io::Result<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [folder, date] = args.as_slice() else {
        eprintln!("usage: pages FOLDER DATE");
        std::process::exit(2);
    };
    let share = Path::new(folder).join("share");
    let pages = Pages { date, share: &share };

    let zrfs = program::Cli::command();
    completions(&zrfs, &share)?;
    let zrfs = built(zrfs);
    pages.write(&zrfs, "1", &["mount.zrfs(8)", "fusermount3(1)"])?;
    for command in zrfs.get_subcommands() {
        let related: &[&str] = match command.get_name() {
            "mount" => &["zrfs(1)", "zrfs-umount(1)", "mount.zrfs(8)", "fusermount3(1)"],
            "umount" => &["zrfs(1)", "zrfs-mount(1)", "umount(8)", "fusermount3(1)"],
            _ => &["zrfs(1)"],
        };
        pages.write(command, "1", related)?;
    }
    let helper = built(helper::Call::command());
    pages.write(&helper, "8", &["zrfs-mount(1)", "mount(8)", "fstab(5)", "systemd.mount(5)"])
}

/// Of every command of `zrfs`. mount.zrfs says its own.
const STATUS: &[(&str, &str)] = &[
    ("0", "Done."),
    ("1", "It failed; one line on standard error says what, where, and what to do."),
    ("2", "Wrong usage."),
];

/// What a text begins with that is a section of its own.
const STATUS_HEADING: &str = "Exit status";

/// The command with all that clap itself adds, and its arguments under headings as pages have them.
fn built(command: Command) -> Command {
    let mut command = command.disable_help_subcommand(true).subcommand_help_heading("COMMANDS");
    command.build();
    under_headings(command)
}

fn under_headings(command: Command) -> Command {
    command
        .mut_args(|arg| if arg.is_positional() { arg.help_heading("Arguments") } else { arg })
        .mut_subcommands(under_headings)
}

/// `zrfs-import` for `zrfs import`.
fn page_name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn completions(command: &Command, share: &Path) -> io::Result<()> {
    // bash-completion loads the file that has the program's own name.
    for (shell, path) in [
        (Shell::Bash, "bash-completion/completions/zrfs"),
        (Shell::Zsh, "zsh/site-functions/_zrfs"),
        (Shell::Fish, "fish/vendor_completions.d/zrfs.fish"),
    ] {
        let path = share.join(path);
        fs::create_dir_all(path.parent().unwrap_or(share))?;
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), "zrfs", &mut script);
        let mut script = String::from_utf8(script).map_err(io::Error::other)?;
        for name in hidden_options(command) {
            script = without_option(&script, name);
        }
        fs::write(path, script)?;
    }
    Ok(())
}

/// The options that `--help` does not show; clap_complete would offer them.
fn hidden_options(command: &Command) -> impl Iterator<Item = &str> {
    let all = command.get_subcommands().flat_map(Command::get_arguments);
    all.filter(|arg| arg.is_hide_set()).filter_map(|arg| arg.get_long())
}

/// Bash has all options of a command in one line, zsh and fish have each in its own.
fn without_option(script: &str, name: &str) -> String {
    let (bash, zsh, fish) = (format!(" --{name} "), format!("'--{name}["), format!(" -l {name} "));
    let lines = script.lines().filter(|line| !line.contains(&zsh) && !line.contains(&fish));
    lines.map(|line| line.replace(&bash, " ") + "\n").collect()
}

/// What all pages share.
struct Pages<'a> {
    date: &'a str,
    share: &'a Path,
}

impl Pages<'_> {
    /// Writes one page: what clap_mangen makes of the arguments, and the texts below them in sections of their own.
    fn write(&self, command: &Command, section: &str, related: &[&str]) -> io::Result<()> {
        let folder = self.share.join(format!("man/man{section}"));
        fs::create_dir_all(&folder)?;
        let name = page_name(command);
        let mut out = File::create(folder.join(format!("{name}.{section}")))?;

        let man = Man::new(command.clone())
            .title(name.to_uppercase())
            .section(section)
            .date(self.date)
            .source(concat!("zrfs ", env!("CARGO_PKG_VERSION")))
            .manual(if section == "8" { "System Administration" } else { "User Commands" });
        man.render_title(&mut out)?;
        man.render_name_section(&mut out)?;
        section_of(&mut out, "SYNOPSIS", |roff| synopsis(roff, command))?;
        man.render_description_section(&mut out)?;
        man.render_options_section(&mut out)?;
        if command.has_subcommands() {
            man.render_subcommands_section(&mut out)?;
        }
        let below = command.get_after_long_help().or_else(|| command.get_after_help());
        let below = below.map(ToString::to_string).unwrap_or_default();
        after_help(&mut out, &below)?;
        if !below.contains(STATUS_HEADING) {
            section_of(&mut out, "EXIT STATUS", |roff| {
                for (number, meaning) in STATUS {
                    item(roff, bold(*number), meaning);
                }
            })?;
        }
        section_of(&mut out, "SEE ALSO", |roff| {
            roff.text([roman(related.join(", "))]);
        })
    }
}

fn section_of(out: &mut impl Write, title: &str, fill: impl FnOnce(&mut Roff)) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    fill(&mut roff);
    roff.to_writer(out)
}

/// The usage line of `--help`.
fn synopsis(roff: &mut Roff, command: &Command) {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    match usage.strip_prefix(name) {
        Some(rest) => roff.text([bold(name), italic(rest)]),
        None => roff.text([roman(usage)]),
    };
}

fn item(roff: &mut Roff, tag: Inline, text: &str) {
    roff.control("TP", []);
    roff.text([tag]);
    roff.text([roman(text)]);
}

/// What `--help` has below the options, in blocks with an empty line between. One that begins with a line that ends in a
/// colon is a section: of commands to copy, or, below `Options`, of names and meanings in two columns. Others are notes.
fn after_help(out: &mut impl Write, text: &str) -> io::Result<()> {
    let mut roff = Roff::new();
    let mut in_notes = false;
    for block in text.split("\n\n").filter(|block| !block.is_empty()) {
        let (first, rest) = block.split_once('\n').unwrap_or((block, ""));
        let (title, lines) = match first.strip_suffix(':') {
            Some(title) if title.starts_with("Example") => ("EXAMPLES", rest),
            Some(title) if title.starts_with("Options") => ("MOUNT OPTIONS", rest),
            Some(title) => (title, rest),
            None if block.starts_with(STATUS_HEADING) => (STATUS_HEADING, block),
            None => ("NOTES", block),
        };
        if title == "NOTES" && in_notes {
            roff.control("PP", []);
        } else {
            roff.control("SH", [title.to_uppercase().as_str()]);
        }
        in_notes = title == "NOTES";
        // `Example, in /etc/fstab:` says where.
        if let Some((_, place)) = first.split_once(", ").filter(|_| title == "EXAMPLES") {
            text_lines(&mut roff, [place]);
        }
        match title {
            "MOUNT OPTIONS" => table(&mut roff, lines),
            "NOTES" | STATUS_HEADING => text_lines(&mut roff, lines.lines()),
            _ => {
                roff.control("nf", []);
                text_lines(&mut roff, lines.lines());
                roff.control("fi", []);
            }
        }
    }
    roff.to_writer(out)
}

/// Lines that are set in hold a name and its meaning, or go on with the meaning above; those at the margin are text.
fn table(roff: &mut Roff, lines: &str) {
    let mut at_margin = false;
    for line in lines.lines() {
        match line.trim_start().split_once("  ") {
            Some((name, meaning)) if line.starts_with(' ') => item(roff, bold(name), meaning.trim_start()),
            _ => {
                if !line.starts_with(' ') && !at_margin {
                    roff.control("PP", []);
                }
                text_lines(roff, [line]);
            }
        }
        at_margin = !line.starts_with(' ');
    }
}

fn text_lines<'a>(roff: &mut Roff, lines: impl IntoIterator<Item = &'a str>) {
    for line in lines {
        roff.text([roman(line.trim_start())]);
    }
}
