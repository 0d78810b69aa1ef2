//! `cargo xtask install`: builds library and command in the profile `release` and puts them in place, with
//! header, `tidewire.pc`, manual page and completions.
//!
//! A user who builds from source runs it, and so does a packager with `DESTDIR`. The step `install` does the
//! same in the profile of the tests, into the target folder, and then uses what it installed as a user would:
//! it compiles the echo example by `pkg-config`, against the shared library and against the static one, and
//! runs it. Invariant: an existing file is replaced by a new one, never written into, because programs may
//! run from it.

use crate::context::{Context, fresh, run};
use crate::package;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs the command with the arguments behind its name.
pub fn main(arguments: &[String]) -> Option<Result<(), String>> {
    let prefix = match arguments {
        [] => "/usr/local",
        [option, prefix] if option == "--prefix" => prefix,
        _ => return None,
    };
    let destination = std::env::var_os("DESTDIR").unwrap_or_default();
    let installed = Context::new().and_then(|context| install(&context, &RELEASE, prefix, &destination));
    Some(installed.map(drop))
}

/// Installs into the target folder and uses it.
pub fn check(context: &Context) -> Result<(), String> {
    if !cfg!(target_os = "linux") || !["cc --version", "pkg-config --version"].iter().all(|it| context.succeeds(it)) {
        context.skip("needs Linux, cc and pkg-config");
        return Ok(());
    }
    let destination = context.target.join("install");
    fresh(&destination)?;
    // Twice: the second time every file is there already.
    install(context, &DEBUG, PREFIX, destination.as_os_str())?;
    let root = install(context, &DEBUG, PREFIX, destination.as_os_str())?;
    run(context.program(root.join("bin/tidewire"), "--version").env_remove("LD_LIBRARY_PATH"))?;
    for (name, options) in [("shared", "--libs"), ("static", "--static --libs")] {
        let program = compile(context, &destination, &root, name, options)?;
        echo(context, &program, &root.join("lib"))?;
    }
    Ok(())
}

/// Where the step installs, below its destination.
const PREFIX: &str = "/opt/tidewire";

/// A folder of the target folder, and the commands that build the commands and then the library into it. One
/// command for both would give the library the features that the commands need.
type Build = (&'static str, [&'static str; 2]);

const RELEASE: Build = (
    "release",
    [
        "cargo build --locked --release --package tidewire-cli --package tidewire-lab-cli --bins",
        "cargo build --locked --release --package tidewire-capi --lib",
    ],
);
/// The commands are those that the tests have built already.
const DEBUG: Build = (
    "debug",
    [
        "cargo build --locked --workspace --exclude xtask --exclude tidewire-capi --bins",
        "cargo build --locked --package tidewire-capi --lib",
    ],
);

/// Builds and copies. Returns the folder of the prefix below the destination.
fn install(
    context: &Context,
    (folder, commands): &Build,
    prefix: &str,
    destination: &OsStr,
) -> Result<PathBuf, String> {
    if !cfg!(target_os = "linux") {
        return Err("the shared library gets the names that Linux wants: install on Linux".into());
    }
    let prefix = std::path::absolute(prefix).map_err(|e| format!("{prefix}: {e}"))?;
    let version = package::version(context)?;
    for command in commands {
        context.run(command)?;
    }
    let built = context.target.join(folder);
    let layout = Layout { context, root: below(destination, &prefix) };
    let so = format!("libtidewire.so.{version}");
    layout.copy(&built.join("libtidewire_capi.so"), &format!("lib/{so}"), "755")?;
    let major = version.split('.').next().unwrap_or_default();
    layout.link(&so, &format!("lib/libtidewire.so.{major}"))?;
    layout.link(&format!("libtidewire.so.{major}"), "lib/libtidewire.so")?;
    layout.copy(&built.join("libtidewire_capi.a"), "lib/libtidewire.a", "644")?;
    layout.copy(&context.root.join("crates/capi/include/tidewire.h"), "include/tidewire.h", "644")?;
    layout.write("lib/pkgconfig/tidewire.pc", &pkg_config(&prefix, &version))?;

    for name in COMMANDS {
        let command = built.join(name);
        layout.copy(&command, &format!("bin/{name}"), "755")?;
        let says = |arguments: &str| context.output_of(&format!("{} {arguments}", command.display()));
        layout.write(&format!("share/man/man1/{name}.1"), &says("man")?)?;
        for (shell, path) in COMPLETIONS {
            layout.write(&path.replace('@', name), &says(&format!("completions {shell}"))?)?;
        }
    }
    println!("installed into {}", layout.root.display());
    Ok(layout.root)
}

/// The prefix below `DESTDIR`, if that is set.
fn below(destination: &OsStr, prefix: &Path) -> PathBuf {
    if destination.is_empty() {
        return prefix.into();
    }
    Path::new(destination).join(prefix.strip_prefix("/").unwrap_or(prefix))
}

/// The text of `tidewire.pc`.
fn pkg_config(prefix: &Path, version: &str) -> String {
    format!(
        "prefix={}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\nName: tidewire\n\
         Description: Coded transport over UDP with an interface like sockets\n\
         URL: https://github.com/tidewire/tidewire\nVersion: {version}\n\
         Cflags: -I${{includedir}}\nLibs: -L${{libdir}} -ltidewire\nLibs.private: {SYSTEM_LIBRARIES}\n",
        prefix.display()
    )
}

/// The folder of the prefix.
struct Layout<'a> {
    context: &'a Context,
    root: PathBuf,
}

impl Layout<'_> {
    /// Copies a file. The program `install` makes the folder, and a new file in the place of an existing one.
    fn copy(&self, from: &Path, name: &str, mode: &str) -> Result<(), String> {
        run(self.context.command(&format!("install -D --mode={mode}")).arg(from).arg(self.root.join(name)))
    }

    fn link(&self, target: &str, name: &str) -> Result<(), String> {
        run(self.context.command("ln --symbolic --force").arg(target).arg(self.root.join(name)))
    }

    fn write(&self, name: &str, text: &str) -> Result<(), String> {
        let from = self.context.target.join("installed-text");
        fs::write(&from, text).map_err(|e| format!("{}: {e}", from.display()))?;
        self.copy(&from, name, "644")
    }
}

/// Compiles the echo example with the flags that pkg-config gives for the installed library.
fn compile(context: &Context, destination: &Path, root: &Path, name: &str, options: &str) -> Result<PathBuf, String> {
    let mut asked = context.command(&format!("pkg-config --cflags {options} tidewire"));
    asked.env("PKG_CONFIG_PATH", root.join("lib/pkgconfig"));
    // The prefix is that of the finished system, and the files lie below the destination.
    let output = asked.env("PKG_CONFIG_SYSROOT_DIR", destination).output().map_err(|e| format!("pkg-config: {e}"))?;
    if !output.status.success() {
        return Err(format!("pkg-config: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let flags = String::from_utf8_lossy(&output.stdout).into_owned();
    // Both libraries lie in the folder, and the linker would take the shared one.
    let flags = if name == "static" { flags.replace("-ltidewire", "-l:libtidewire.a") } else { flags };
    let program = destination.join(format!("echo-{name}"));
    let mut compiler = context.command("cc -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror -o");
    run(compiler.arg(&program).arg("crates/capi/examples/echo.c").args(flags.split_whitespace()).arg("-lpthread"))?;
    Ok(program)
}

/// Echoes over loopback with a compiled example.
fn echo(context: &Context, program: &Path, libraries: &Path) -> Result<(), String> {
    let command = |arguments: &str| -> Command {
        let mut command = context.program(program, arguments);
        command.env("LD_LIBRARY_PATH", libraries);
        command
    };
    let problem = |e| format!("{}: {e}", program.display());
    let mut server = command("server").stdout(Stdio::piped()).spawn().map_err(problem)?;
    let mut link = String::new();
    let output = server.stdout.take().ok_or("the server's output is not piped")?;
    BufReader::new(output).read_line(&mut link).map_err(problem)?;
    let client = run(&mut command(&format!("client {} 8", link.trim())));
    let server = if client.is_ok() { server.wait() } else { server.kill().and_then(|()| server.wait()) };
    client?;
    match server.map_err(problem)? {
        status if status.success() => Ok(()),
        status => Err(format!("the server ended with {status}")),
    }
}

/// What the static library needs: `cargo rustc --package tidewire-capi --lib -- --print native-static-libs`,
/// without what cc adds by itself.
const SYSTEM_LIBRARIES: &str = "-lutil -lrt -lpthread -lm -ldl";
/// The commands, each with its manual page.
const COMMANDS: [&str; 2] = ["tidewire", "tidewire-lab"];
/// Where each shell looks for the completions of the command `@`, below a prefix.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/@"),
    ("zsh", "share/zsh/site-functions/_@"),
    ("fish", "share/fish/vendor_completions.d/@.fish"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_destination_comes_before_the_prefix_and_not_into_the_file() {
        assert_eq!(below(OsStr::new(""), Path::new("/usr")), Path::new("/usr"));
        assert_eq!(below(OsStr::new("/tmp/root"), Path::new("/usr")), Path::new("/tmp/root/usr"));
        let text = pkg_config(Path::new("/usr"), "1.2.3");
        assert!(text.starts_with("prefix=/usr\nlibdir=${prefix}/lib\n"));
        assert!(text.contains("\nVersion: 1.2.3\n") && text.contains("\nLibs: -L${libdir} -ltidewire\n"));
    }
}
