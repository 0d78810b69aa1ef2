//! The peers that can be measured across the lab's link: a table in which each runs as its users would run
//! it.
//!
//! The verb `tidewire-lab run --peer` reads it: `peers.toml` of this folder, and files of the same form.
//! `Processes` starts the command lines of a peer. Invariant: a parsed table has all that its peers need, and
//! no command line names an unknown variable.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The table of `peers.toml`.
const KNOWN: &str = include_str!("peers.toml");
/// The keys of a peer.
const KEYS: [&str; 8] = ["kind", "control", "notsent", "sack", "package", "far", "near", "result"];
/// The variables of a command line.
const VARIABLES: [&str; 8] = ["far", "near", "entry", "sink", "wire", "told", "four_rtts_ms", "seconds"];
/// The name of our command in a command line, whatever its file is called.
const OURSELVES: &str = "tidewire";

/// One way to carry data from the near host to the far one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// What it is called.
    pub name: String,
    /// What it carries, and how it is run.
    pub kind: Kind,
    /// The package to install if a program is missing.
    package: Option<String>,
}

/// What a peer carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A TCP connection directly across the link.
    Kernel(KernelTcp),
    /// A TCP connection from its entry to its sink.
    Stream(Programs),
    /// UDP datagrams from its entry to its sink.
    Datagrams(Programs),
    /// It makes its own load. The received bytes are in the JSON that its near program prints, at this
    /// pointer (RFC 6901).
    Itself(Programs, String),
}

/// How kernel TCP is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelTcp {
    /// Its congestion control, by the kernel's name.
    pub control: String,
    /// Bytes that may wait unsent in its socket (`tcp_notsent_lowat` of tcp(7)). `None` means the system's
    /// buffer.
    pub notsent: Option<u32>,
    /// Whether its receiver may report what it holds behind a gap (SACK, `tcp_sack` of tcp(7)).
    pub sack: bool,
}

/// Command lines with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    /// On the far host; started first.
    pub far: String,
    /// On the near host.
    pub near: String,
}

/// The values for the variables of a command line.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings<'a> {
    /// The file of the `tidewire` command.
    pub program: &'a Path,
    /// The far host.
    pub far: Ipv4Addr,
    /// The near host.
    pub near: Ipv4Addr,
    /// Where the near program listens, on its host.
    pub entry: SocketAddrV4,
    /// Where the far program connects or sends to, on its host.
    pub sink: SocketAddrV4,
    /// A port for the traffic that crosses the link.
    pub wire: u16,
    /// The link's round trip.
    pub rtt: Duration,
    /// Duration of the load.
    pub time: Duration,
}

impl Peer {
    /// Its command lines; `None` for kernel TCP.
    pub fn programs(&self) -> Option<&Programs> {
        match &self.kind {
            Kind::Kernel(_) => None,
            Kind::Stream(programs) | Kind::Datagrams(programs) | Kind::Itself(programs, _) => Some(programs),
        }
    }

    /// Checks that this system has its programs.
    ///
    /// # Errors
    /// Names the missing program and the package to install.
    pub fn check(&self) -> anyhow::Result<()> {
        let Some(Programs { far, near }) = self.programs() else { return Ok(()) };
        for line in [far, near] {
            let name = line.split_whitespace().next().unwrap_or_default();
            if name != OURSELVES && find(name).is_none() {
                let package = self.package.as_deref().unwrap_or(name);
                bail!("{} needs the program `{name}`: install the package {package}, or put it on PATH", self.name);
            }
        }
        Ok(())
    }
}

impl Programs {
    /// Whether the near program is told what the far one prints first.
    pub fn tells(&self) -> bool {
        self.near.contains("{told}")
    }
}

impl Surroundings<'_> {
    /// The words of a command line. The first is the path of a program.
    ///
    /// # Errors
    /// Fails if the program is not found.
    pub(crate) fn fill(&self, line: &str, told: &str) -> anyhow::Result<Vec<String>> {
        let values = [
            self.far.to_string(),
            self.near.to_string(),
            self.entry.to_string(),
            self.sink.to_string(),
            self.wire.to_string(),
            told.to_owned(),
            (4 * self.rtt).as_millis().to_string(),
            self.time.as_secs_f64().ceil().to_string(),
        ];
        let fill = |word: &str| {
            let variables = VARIABLES.iter().zip(&values);
            variables.fold(word.to_owned(), |word, (name, value)| word.replace(&format!("{{{name}}}"), value))
        };
        let mut words: Vec<String> = line.split_whitespace().map(fill).collect();
        let name = words.first().context("an empty command line")?;
        let path = if name == OURSELVES { Some(self.program.to_owned()) } else { find(name) };
        let path = path.with_context(|| format!("no program `{name}`"))?;
        words[0] = path.to_str().context("a path that is no text")?.to_owned();
        Ok(words)
    }
}

/// The path of a program, as a shell would find it.
fn find(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Path::new(name).is_file().then(|| PathBuf::from(name));
    }
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Peers by name.
#[derive(Clone, Debug)]
pub struct Table(BTreeMap<String, Peer>);

impl Table {
    /// The peers that the lab knows, and those of a file, which may replace them.
    ///
    /// # Errors
    /// Says what is wrong in the file, with its line.
    pub fn read(file: Option<&Path>) -> anyhow::Result<Self> {
        let Some(file) = file else { return Self::with("", Path::new("")) };
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        Self::with(&text, file)
    }

    /// The peers that the lab knows, and those of `text`, which may replace them. `path` is what errors call
    /// the text.
    ///
    /// # Errors
    /// Says what is wrong in the text, with its line.
    pub fn with(text: &str, path: &Path) -> anyhow::Result<Self> {
        let mut table = Self(parse(KNOWN, Path::new("peers.toml"))?);
        table.0.extend(parse(text, path)?);
        Ok(table)
    }

    /// The peer with this name.
    ///
    /// # Errors
    /// Says that there is none, and lists all names.
    pub fn named(&self, name: &str) -> anyhow::Result<&Peer> {
        let names = || self.0.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        self.0.get(name).ok_or_else(|| anyhow!("no peer `{name}`; there are: {}", names()))
    }
}

fn parse(text: &str, path: &Path) -> anyhow::Result<BTreeMap<String, Peer>> {
    let at = |span: std::ops::Range<usize>| {
        let line = text.as_bytes()[..span.start.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1;
        format!("{}:{line}", path.display())
    };
    let document =
        DeTable::parse(text).map_err(|error| anyhow!("{}: {}", at(error.span().unwrap_or(0..0)), error.message()))?;
    let mut peers = BTreeMap::new();
    for (name, section) in document.get_ref() {
        let place = at(name.span());
        let keys = keys(section).and_then(|keys| peer(name.get_ref(), keys));
        let peer = keys.map_err(|wrong| anyhow!("{place}: {}: {wrong}", name.get_ref()))?;
        peers.insert(peer.name.clone(), peer);
    }
    Ok(peers)
}

/// The texts of a section.
fn keys(section: &Spanned<DeValue<'_>>) -> anyhow::Result<BTreeMap<String, String>> {
    let section = section.get_ref().as_table().context("not a section: write [NAME]")?;
    let mut keys = BTreeMap::new();
    for (key, value) in section {
        let key = key.get_ref().as_ref();
        if !KEYS.contains(&key) {
            bail!("{key}: no such key (allowed: {})", KEYS.join(", "));
        }
        let text = value.get_ref().as_str().with_context(|| format!("{key}: write a text in quotes"))?;
        keys.insert(key.to_owned(), text.to_owned());
    }
    Ok(keys)
}

fn peer(name: &str, mut keys: BTreeMap<String, String>) -> anyhow::Result<Peer> {
    let mut take = |key: &str| keys.remove(key).with_context(|| format!("{key} is missing"));
    let kind = take("kind")?;
    let mut programs = || {
        let programs = Programs { far: take("far")?, near: take("near")? };
        check_variables(&programs.far, &VARIABLES.map(|name| if name == "told" { "" } else { name }))
            .and_then(|()| check_variables(&programs.near, &VARIABLES))?;
        anyhow::Ok(programs)
    };
    let kind = match kind.as_str() {
        "kernel" => {
            let control = take("control")?;
            let notsent = take("notsent").ok().map(|bytes| bytes.parse()).transpose();
            let notsent = notsent.context("notsent: write a number of bytes")?;
            let sack = match take("sack").as_deref() {
                Ok("off") => false,
                Ok("on") | Err(_) => true,
                Ok(other) => bail!("sack: `{other}` is neither on nor off"),
            };
            Kind::Kernel(KernelTcp { control, notsent, sack })
        }
        "stream" => Kind::Stream(programs()?),
        "datagrams" => Kind::Datagrams(programs()?),
        "itself" => {
            let programs = programs()?;
            Kind::Itself(programs, take("result")?)
        }
        other => bail!("kind: `{other}` is none (allowed: kernel, stream, datagrams, itself)"),
    };
    let package = keys.remove("package");
    match keys.keys().next() {
        Some(unused) => bail!("{unused}: not for this kind"),
        None => Ok(Peer { name: name.to_owned(), kind, package }),
    }
}

fn check_variables(line: &str, allowed: &[&str]) -> anyhow::Result<()> {
    if line.trim().is_empty() {
        bail!("an empty command line");
    }
    for part in line.split('{').skip(1) {
        let (name, _) = part.split_once('}').context("a `{` without its `}`")?;
        if name.is_empty() || !allowed.contains(&name) {
            bail!(
                "{{{name}}} is not filled in here (allowed: {})",
                VARIABLES.map(|name| format!("{{{name}}}")).join(" ")
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting() -> Surroundings<'static> {
        Surroundings {
            program: Path::new("/somewhere/tidewire"),
            far: Ipv4Addr::new(10, 99, 0, 2),
            near: Ipv4Addr::new(10, 99, 0, 1),
            entry: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 4000),
            sink: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 4001),
            wire: 4200,
            rtt: Duration::from_millis(60),
            time: Duration::from_millis(14_500),
        }
    }

    fn words(line: &str) -> String {
        // A program that every system has, in place of one that may be missing here.
        let line = line.split_once(' ').map_or("sh".into(), |(_, rest)| format!("sh {rest}"));
        setting().fill(&line, "tidewire://x/#y").unwrap()[1..].join(" ")
    }

    #[test]
    fn known_peers_are_run_as_their_users_run_them() {
        let table = Table::read(None).unwrap();
        let lines = |name: &str| {
            let programs = table.named(name).unwrap().programs().unwrap();
            [words(&programs.far), words(&programs.near)]
        };
        assert_eq!(
            lines("tidewire"),
            [
                "serve --listen 10.99.0.2:4200 --allow 127.0.0.1:4001",
                "forward -L 127.0.0.1:4000:127.0.0.1:4001 tidewire://x/#y"
            ]
        );
        assert_eq!(
            lines("kcptun-default"),
            ["-l 10.99.0.2:4200 -t 127.0.0.1:4001", "-l 127.0.0.1:4000 -r 10.99.0.2:4200"]
        );
        let [far, near] = lines("srt-live-4rtt-fec");
        assert!(far.ends_with(
            "latency=240&sndbuf=24000000&rcvbuf=24000000&fc=60000&packetfilter=fec,cols:10,rows:5 udp://127.0.0.1:4001"
        ));
        assert!(near.starts_with("-q udp://127.0.0.1:4000 srt://10.99.0.2:4200?mode=caller&latency=240&"));
        assert_eq!(lines("iperf3-bbr")[1], "-c 10.99.0.2 -p 4200 -C bbr -t 15 -O 3 -J");
        let tcp = |notsent| Kind::Kernel(KernelTcp { control: "bbr".into(), notsent, sack: true });
        assert_eq!(table.named("tcp-bbr").unwrap().kind, tcp(None));
        assert_eq!(table.named("tcp-bbr-notsent").unwrap().kind, tcp(Some(32_768)));
        let plain = KernelTcp { control: "reno".into(), notsent: None, sack: false };
        assert_eq!(table.named("tcp-reno-nosack").unwrap().kind, Kind::Kernel(plain));
        assert!(table.named("tcp-bbr").unwrap().programs().is_none());
        assert!(table.named("quinn-bbr").unwrap().programs().unwrap().tells());
        let ourselves = setting().fill("tidewire serve", "").unwrap();
        assert_eq!(ourselves[0], "/somewhere/tidewire");
        let wrong = table.named("srt").unwrap_err().to_string();
        assert!(wrong.starts_with("no peer `srt`; there are: ") && wrong.contains(", srt-live, "), "{wrong}");
    }

    #[test]
    fn a_wrong_table_is_refused_with_its_line() {
        let stream = "[x]\nkind = \"stream\"\n";
        for (text, wanted) in [
            ("[x]\nkind = \"tcp\"\n", "p.toml:1: x: kind: `tcp` is none (allowed: kernel, stream, datagrams, itself)"),
            ("\n[x]\ncontrol = \"bbr\"\n", "p.toml:2: x: kind is missing"),
            ("[x]\nkind = 3\n", "p.toml:1: x: kind: write a text in quotes"),
            ("x = 1\n", "p.toml:1: x: not a section: write [NAME]"),
            ("[x]\nkinds = \"y\"\n", "p.toml:1: x: kinds: no such key (allowed: kind, "),
            ("[x]\nkind = \"kernel\"\ncontrol = \"bbr\"\nfar = \"y\"\n", "p.toml:1: x: far: not for this kind"),
            (
                "[x]\nkind = \"kernel\"\ncontrol = \"bbr\"\nnotsent = \"2kB\"\n",
                "p.toml:1: x: notsent: write a number of bytes",
            ),
            (
                "[x]\nkind = \"kernel\"\ncontrol = \"bbr\"\nsack = \"no\"\n",
                "p.toml:1: x: sack: `no` is neither on nor off",
            ),
            (stream, "p.toml:1: x: far is missing"),
            (&format!("{stream}far = \"a {{told}}\"\nnear = \"b\""), "p.toml:1: x: {told} is not filled in here"),
            (&format!("{stream}far = \"a\"\nnear = \"b {{port}}\""), "p.toml:1: x: {port} is not filled in here"),
            (&format!("{stream}far = \"a\"\nnear = \"b {{\""), "p.toml:1: x: a `{` without its `}`"),
            (&format!("{stream}far = \" \"\nnear = \"b\""), "p.toml:1: x: an empty command line"),
            ("[x\n", "p.toml:1: "),
        ] {
            let wrong = parse(text, Path::new("p.toml")).unwrap_err().to_string();
            assert!(wrong.starts_with(wanted), "{wrong}");
        }
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let text =
            "[x]\nkind = \"stream\"\npackage = \"some-tools\"\nfar = \"sh\"\nnear = \"no-such-program -l {entry}\"\n";
        let peers = parse(text, Path::new("p.toml")).unwrap();
        let wrong = peers["x"].check().unwrap_err().to_string();
        assert_eq!(wrong, "x needs the program `no-such-program`: install the package some-tools, or put it on PATH");
        assert!(find("/no/such/program").is_none() && find("sh").is_some());
    }
}
