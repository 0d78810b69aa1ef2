//! Help in two tiers: `-h` shows what one needs in the first week and two examples to copy, `--help`
//! everything.
//!
//! Both commands fill in [`Tiers`] and shape their finished command with it. Invariant, which their tests
//! check by [`Tiers::faults`]: each verb is in one group, has two examples that parse, and shows at most 15
//! options by `-h`.

use std::fmt::Write as _;

use clap::Command;

/// Options that fit a screen beside their headings and the examples.
const MOST: usize = 15;

/// What clap cannot know of a command's verbs.
pub struct Tiers {
    /// The verbs as `-h` lists them: heading and names.
    pub groups: &'static [(&'static str, &'static [&'static str])],
    /// Two lines to copy for each verb. LINK is what the other side printed.
    pub examples: &'static [(&'static str, [&'static str; 2])],
    /// Options that only `--help` shows, for every verb.
    pub later: &'static [&'static str],
    /// The same for one verb.
    pub later_of: &'static [(&'static str, &'static [&'static str])],
    /// Verbs whose first tier has what is in `later`, because it is what they are for.
    pub whole: &'static [&'static str],
}

impl Tiers {
    /// Gives the command its two tiers.
    pub fn shape(&self, command: Command) -> Command {
        let groups = self.listed(&command);
        let command = self.tiers(command);
        command.disable_help_subcommand(true).help_template(format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{groups}\nOptions:\n{{options}}{{after-help}}"
        ))
    }

    fn tiers(&self, mut command: Command) -> Command {
        let name = command.get_name().to_owned();
        let own = self.later_of.iter().find(|(verb, _)| *verb == name).map_or(&[][..], |(_, options)| options);
        if !self.whole.contains(&name.as_str()) {
            command = command.mut_args(|argument| {
                let is_later =
                    argument.get_long().is_some_and(|long| self.later.contains(&long) || own.contains(&long));
                if is_later { argument.hide_short_help(true) } else { argument }
            });
        }
        if let Some((_, lines)) = self.examples.iter().find(|(verb, _)| *verb == name) {
            command = command.after_help(format!("Examples:\n  {}\n  {}", lines[0], lines[1]));
        }
        command.mut_subcommands(|verb| self.tiers(verb))
    }

    /// The verbs with their meanings, in their groups.
    fn listed(&self, command: &Command) -> String {
        let mut text = String::new();
        for (heading, verbs) in self.groups {
            let _ = write!(text, "\n{heading}:\n");
            for verb in verbs.iter().filter_map(|name| command.find_subcommand(name)) {
                let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
                let mut column = 0;
                let _ = write!(text, "  {:<11} ", verb.get_name());
                for word in about.split(' ') {
                    if column + word.chars().count() > WIDTH {
                        let _ = write!(text, "\n{:14}", "");
                        column = 0;
                    }
                    let _ = write!(text, "{}{word}", if column > 0 { " " } else { "" });
                    column += word.chars().count() + 1;
                }
                text.push('\n');
            }
        }
        text
    }

    /// What breaks the invariant in `command`, which [`Self::shape`] has shaped. `LINK` in an example stands
    /// for a link that parses.
    pub fn faults(&self, command: &Command) -> Vec<String> {
        let mut faults = Vec::new();
        let listed: Vec<&str> = self.groups.iter().flat_map(|(_, verbs)| verbs.iter().copied()).collect();
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            if listed.iter().filter(|name| **name == verb.get_name()).count() != 1 {
                faults.push(format!("{} is not in one group", verb.get_name()));
            }
        }
        let verbs = verbs(command);
        let has = |verb: &Command, option: &str| verb.get_arguments().any(|arg| arg.get_long() == Some(option));
        let unknown = self.later.iter().filter(|option| !verbs.iter().any(|verb| has(verb, option)));
        faults.extend(unknown.map(|option| format!("no verb has --{option}")));
        for (name, options) in self.later_of {
            let verb = verbs.iter().find(|verb| verb.get_name() == *name);
            let unknown = options.iter().filter(|option| !verb.is_some_and(|verb| has(verb, option)));
            faults.extend(unknown.map(|option| format!("{name} has no --{option}")));
        }
        faults.extend(verbs.into_iter().flat_map(|verb| self.faults_of(verb, command)));
        faults
    }

    fn faults_of(&self, mut verb: Command, command: &Command) -> Vec<String> {
        let name = verb.get_name().to_owned();
        let help = verb.render_help().to_string();
        let options = help.lines().filter(|line| line.starts_with("  ") && line.trim_start().starts_with('-')).count();
        let mut faults = Vec::new();
        if options > MOST {
            faults.push(format!("{name} shows {options} options:\n{help}"));
        }
        let Some((_, lines)) = self.examples.iter().find(|(verb, _)| *verb == name) else {
            faults.push(format!("{name} has no examples"));
            return faults;
        };
        let program = format!("{} ", command.get_name());
        for line in lines {
            let words = line.split(['|', '>']).find_map(|part| part.trim().strip_prefix(&program)).unwrap_or_default();
            let words = words.split_whitespace().map(|word| match word {
                "LINK" => "tidewire://h:1/#tws1",
                word => word.trim_matches('\''),
            });
            if let Err(error) = command.clone().try_get_matches_from([command.get_name()].into_iter().chain(words)) {
                faults.push(format!("{line}: {error}"));
            }
        }
        faults
    }
}

/// Columns for the meaning of a verb, in a terminal of 100.
const WIDTH: usize = 84;

/// The verbs that have options, with the names by which [`Tiers`] knows them.
pub fn verbs(command: &Command) -> Vec<Command> {
    let visible = command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
    visible.flat_map(|verb| if verb.has_subcommands() { verbs(verb) } else { vec![verb.clone()] }).collect()
}
