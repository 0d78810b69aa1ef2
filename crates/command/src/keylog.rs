//! `--keylog FILE`: packet keys for a packet analyser (docs/wireshark.md).
//!
//! Whoever reads the file reads and forges everything of the sessions in it. So the option has no effect
//! without a second one that says so, each use prints a warning, and only the owner can read the file.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use clap::Args;
use tidewire::{KeyLog, LoggedKey};

use crate::exit::{Exit, Failure, OrExit};
use crate::report::Console;

/// The key log options of the verbs with connections.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Watching")]
pub struct KeyLogging {
    /// Append the keys of all connections to FILE, for Wireshark. Who reads FILE reads and forges all traffic
    /// of these connections. Only with --insecure-keylog
    #[arg(long, value_name = "FILE", requires = "insecure_keylog")]
    pub keylog: Option<PathBuf>,
    /// Confirm that --keylog gives up the secrecy of the connections
    #[arg(long, requires = "keylog")]
    pub insecure_keylog: bool,
}

impl KeyLogging {
    /// Opens the key log, if there is one, and warns of it.
    ///
    /// # Errors
    /// [`Exit::Usage`] if the file cannot be opened, or others can read it.
    pub fn open(&self, console: &Console) -> Result<Option<Arc<dyn KeyLog>>, Failure> {
        let Some(path) = &self.keylog else { return Ok(None) };
        // A settings file can name one option without the other, which the command line refuses by itself.
        if !self.insecure_keylog {
            let text = "--keylog gives up the secrecy of the connections: confirm that by --insecure-keylog";
            return Err(Failure::message(Exit::Usage, text));
        }
        let log = KeyLogFile::open(path, console).or_exit(Exit::Usage)?;
        console.warn(&format!(
            "writing keys to `{}`: who reads this file reads and forges all traffic of these connections; delete it \
             after use",
            path.display()
        ));
        Ok(Some(Arc::new(log)))
    }
}

/// A file to which keys are appended, one line each.
pub struct KeyLogFile {
    file: File,
    path: PathBuf,
    console: Console,
    has_failed: AtomicBool,
}

impl KeyLogFile {
    /// Opens a file, or makes it with mode 0600.
    ///
    /// # Errors
    /// The file cannot be opened, is not a regular file, belongs to another user, or its group or others can
    /// read it.
    pub fn open(path: &Path, console: &Console) -> anyhow::Result<Self> {
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            // A symbolic link could lead the keys to where others read them. A pipe would block here.
            let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
            options.mode(0o600).custom_flags(flags.bits() as i32);
        }
        let file = options.open(path).with_context(|| format!("cannot write the key log `{}`", path.display()))?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            bail!("the key log `{}` is not a regular file", path.display());
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let (mode, owner) = (metadata.mode() & 0o777, metadata.uid());
            let path = path.display();
            if owner != rustix::process::geteuid().as_raw() {
                bail!("the key log `{path}` belongs to another user (uid {owner}): name a file of your own");
            }
            if mode & 0o077 != 0 {
                bail!("the key log `{path}` is open to others (mode {mode:04o}): chmod 600 '{path}'");
            }
        }
        Ok(Self { file, path: path.into(), console: console.clone(), has_failed: AtomicBool::new(false) })
    }
}

impl KeyLog for KeyLogFile {
    fn record(&self, key: &LoggedKey<'_>) {
        // One call for each line, so that the lines of several processes do not mix.
        if let Err(error) = (&self.file).write_all(format!("{key}\n").as_bytes())
            && !self.has_failed.swap(true, Ordering::Relaxed)
        {
            self.console.warn(&format!("the key log `{}` is incomplete: {error}", self.path.display()));
        }
    }
}

impl fmt::Debug for KeyLogFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyLogFile").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn refused(path: &Path) -> String {
        format!("{:#}", KeyLogFile::open(path, &Console::new(false, true)).map(|_| ()).unwrap_err())
    }

    #[test]
    fn a_settings_file_cannot_leave_out_the_confirmation() {
        let folder = tempfile::tempdir().unwrap();
        let keylog = Some(folder.path().join("keys"));
        let console = Console::new(false, true);
        let alone = KeyLogging { keylog: keylog.clone(), insecure_keylog: false };
        let failure = alone.open(&console).map(|_| ()).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.to_string().contains("--insecure-keylog") && !keylog.as_ref().unwrap().exists());
        assert!(KeyLogging { keylog, insecure_keylog: true }.open(&console).unwrap().is_some());
        assert!(KeyLogging::default().open(&console).unwrap().is_none());
    }

    #[test]
    fn a_key_log_is_its_owners_and_no_file_that_others_read_becomes_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        KeyLogFile::open(&path, &Console::new(false, true)).unwrap();
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        KeyLogFile::open(&path, &Console::new(false, true)).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(refused(&path).contains("is open to others (mode 0640): chmod 600"), "{}", refused(&path));
        assert_eq!(mode(), 0o640);
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(refused(&link).starts_with("cannot write the key log"));
        assert!(refused(Path::new("/dev/null")).contains("is not a regular file"));
    }

    #[test]
    #[ignore = "needs root: gives a file to another user"]
    fn a_file_of_another_user_becomes_no_key_log() {
        tidewire_testing::needs("root", rustix::process::geteuid().is_root());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        KeyLogFile::open(&path, &Console::new(false, true)).unwrap();
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        assert!(refused(&path).contains("belongs to another user (uid 65534)"), "{}", refused(&path));
    }
}
