//! Parses any text as a configuration file: it is refused with a reason, or the options accept all its
//! settings.
#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use clap::Command;
use clap::error::ErrorKind;
use libfuzzer_sys::fuzz_target;
use tidewire_cli::settings::Settings;
use tidewire_cli::verb::command;

static COMMAND: LazyLock<Command> = LazyLock::new(command);

fuzz_target!(|text: &str| {
    let Ok(settings) = Settings::parse(text, Path::new("config.toml"), &COMMAND) else { return };
    if settings.is_empty() {
        return;
    }
    for verb in ["receive", "serve", "bench"] {
        let parsed = settings.apply(COMMAND.clone()).try_get_matches_from(["tidewire", verb]);
        let wrong = parsed.err().filter(|error| {
            matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::UnknownArgument)
        });
        assert!(wrong.is_none(), "{wrong:?}");
    }
});
