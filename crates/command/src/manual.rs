//! The manual page and the completions of a command, made from the same texts as `--help`.
//!
//! The page has all verbs, in the macros of man(7). It is written here because two functions need no
//! dependency.

use std::fmt::Write as _;

use clap::{Arg, Command};
use clap_complete::{Shell, generate};

use crate::exit::Exit;
use crate::stdout;

/// Arguments of the verb `completions`.
#[derive(Debug, clap::Args)]
pub struct Completions {
    /// Shell to print the script for
    shell: Shell,
}

impl Completions {
    /// Prints the script that makes the shell complete verbs and options of `command`.
    pub fn print(&self, mut command: Command) {
        let mut script = Vec::new();
        let name = command.get_name().to_owned();
        generate(self.shell, &mut command, name, &mut script);
        stdout::write(&String::from_utf8_lossy(&script));
    }
}

/// Prints the manual page of `command`; see [`page`].
pub fn print(command: Command, environment: &[(&str, &str)]) {
    stdout::write(&page(command, environment));
}

/// The manual page of a command. `environment` has the variables that it reads, each with its meaning.
pub fn page(mut command: Command, environment: &[(&str, &str)]) -> String {
    command.build();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let (name, version) = (command.get_name().to_owned(), command.get_version().unwrap_or_default().to_owned());
    let mut page = format!(".TH {} 1 \"\" \"tidewire {version}\"\n", text(&name.to_uppercase()));
    let _ = write!(page, ".SH NAME\n{} \\- {}\n", text(&name), text(&about));
    let _ = write!(page, ".SH SYNOPSIS\n.B {}\n.I VERB\n[\\fIARGUMENTS\\fR]\n.SH VERBS\n", text(&name));
    verbs(&mut page, &command, &name);
    page.push_str(".SH EXIT STATUS\n");
    for (exit, meaning) in Exit::TABLE {
        let _ = write!(page, ".TP\n.B {}\n{}\n", exit.code(), text(meaning));
    }
    if !environment.is_empty() {
        page.push_str(".SH ENVIRONMENT\n");
    }
    for (variable, meaning) in environment {
        let _ = write!(page, ".TP\n.B {}\n{}\n", text(variable), text(meaning));
    }
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
        let option = Arg::new("bitrate").short('b').long("bitrate").value_name("RATE").help("Bits a second");
        let bench = Command::new("bench").about("Measure").arg(option);
        let command = Command::new("tide-x").version("1").about("A tide").subcommand(bench);
        let page = page(command, &[("TIDE_LINK", "The link")]);
        for wanted in [
            ".TH TIDE\\-X 1",
            ".SS tide\\-x bench\n",
            "\\fB\\-b, \\-\\-bitrate RATE\\fR",
            "\n.B 130\n",
            "\n.B TIDE_LINK\nThe link\n",
        ] {
            assert!(page.contains(wanted), "{wanted} is missing in\n{page}");
        }
        assert_eq!(text(".x -y\n'z\\"), "\\&.x \\-y\n\\&'z\\e");
    }
}
