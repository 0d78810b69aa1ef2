//! `tidewire man`: prints the manual page, made from the same texts as `--help`.
//!
//! It is one page for all verbs, in the macros of man(7). It is written here because two functions need no
//! dependency.

use std::fmt::Write as _;
use std::io::Write as _;

use clap::{Arg, Command, CommandFactory};

use crate::exit::Exit;
use crate::link::LINK_VARIABLE;

/// Prints the page on stdout.
pub fn run() {
    let page = page(super::Cli::command());
    // A reader that closed the pipe is not a failure.
    let _ = std::io::stdout().lock().write_all(page.as_bytes());
}

fn page(mut command: Command) -> String {
    command.build();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut page = format!(".TH TIDEWIRE 1 \"\" \"tidewire {}\"\n", command.get_version().unwrap_or_default());
    let _ = write!(page, ".SH NAME\ntidewire \\- {}\n", text(&about));
    page.push_str(".SH SYNOPSIS\n.B tidewire\n.I VERB\n[\\fIARGUMENTS\\fR]\n.SH VERBS\n");
    verbs(&mut page, &command, "tidewire");
    page.push_str(".SH EXIT STATUS\n");
    for (exit, meaning) in Exit::TABLE {
        let _ = write!(page, ".TP\n.B {}\n{}\n", exit.code(), text(meaning));
    }
    let _ = write!(
        page,
        ".SH ENVIRONMENT\n.TP\n.B {LINK_VARIABLE}\nThe link to connect to, if the command line has none.\n"
    );
    page
}

/// Writes a section for each verb below `parent`, with its options. A verb that only groups others has no
/// section.
fn verbs(page: &mut String, parent: &Command, name: &str) {
    for verb in parent.get_subcommands().filter(|verb| verb.get_name() != "help") {
        let name = format!("{name} {}", verb.get_name());
        if verb.has_subcommands() {
            verbs(page, verb, &name);
            continue;
        }
        let usage = verb.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ");
        let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = write!(page, ".SS {}\n.B {}\n.PP\n{}.\n", text(&name), text(usage), text(&about));
        for argument in verb.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let _ = write!(page, ".TP\n\\fB{}\\fR\n{}\n", text(&heading(argument)), text(&help));
        }
    }
}

/// Formats the names and value of an option, for example `-b, --bitrate RATE`.
fn heading(argument: &Arg) -> String {
    let short = argument.get_short().map(|short| format!("-{short}"));
    let long = argument.get_long().map(|long| format!("--{long}"));
    let takes_value = argument.get_action().takes_values();
    let values = argument.get_value_names().unwrap_or_default().join(" ");
    let names: Vec<String> = short.into_iter().chain(long).collect();
    match (names.join(", "), values) {
        (names, values) if names.is_empty() => values,
        (names, values) if takes_value => format!("{names} {values}"),
        (names, _) => names,
    }
}

/// Escapes characters with a meaning in roff: backslashes, hyphens, and a dot or quote at the start of a
/// line.
fn text(plain: &str) -> String {
    let lines = plain.lines().map(str::trim).map(|line| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_and_option_stands_in_the_page() {
        let page = page(crate::verb::Cli::command());
        for wanted in
            [".SS tidewire lab link\n", ".SS tidewire send\n", "\\fB\\-b, \\-\\-bitrate RATE\\fR", "\n.B 130\n"]
        {
            assert!(page.contains(wanted), "{wanted} is missing in\n{page}");
        }
        assert_eq!(text(".x -y\n'z\\"), "\\&.x \\-y\n\\&'z\\e");
    }
}
