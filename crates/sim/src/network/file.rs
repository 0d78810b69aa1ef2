//! Scenario files of networks: nodes, links, tunnels and flows as TOML. `docs/networks.md` has the format.
//!
//! [`read`] takes both forms, that of two ends ([`crate::scenario`]) and this one. Every refusal names file,
//! line and key, and says what to write. Invariant: a plan that is returned can be run.

mod relay;
mod tunnel;

use core::time::Duration;
use std::path::Path;

use tidewire_proto::config::Config;
use tidewire_units::{nearest, parse_duration};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::plan::{Carrier, Content, Control, ENDLESS, FlowPlan, Plan, seed_of_link};
use super::topology::{Joint, Node, Role, Topology};
use crate::duplex::DuplexConfig;
use crate::link::{Capacity, Discipline, LinkConfig};
use crate::load::Flow;
use crate::pair::End;
use crate::scenario::{Reader, Scenario, ScenarioError, ScenarioProblem};
use crate::settings::{Direction, SettingError};
use crate::video::Pace;
use crate::work::{END_KEYS, NOT_WITH_VIDEO, VIDEO_KEYS, set_end, set_flow};

/// What a scenario file describes.
#[derive(Clone, Debug)]
pub enum Described {
    /// Two ends and a link.
    Ends(Box<Scenario>),
    /// A network.
    Network(Plan),
}

/// Reads the scenario file at `path`, in either form.
///
/// # Errors
/// See [`ScenarioProblem`].
pub fn read(path: &Path) -> Result<Described, ScenarioError> {
    let text = Scenario::text(path)?;
    if is_network(&text) {
        return Plan::parse(&text, path).map(Described::Network);
    }
    Scenario::parse(&text, path).map(|scenario| Described::Ends(Box::new(scenario)))
}

/// Whether a text has nodes, or a list of links.
fn is_network(text: &str) -> bool {
    DeTable::parse(text).is_ok_and(|document| {
        let table = document.get_ref();
        table.contains_key("node") || table.get("link").is_some_and(|link| link.get_ref().is_array())
    })
}

/// The top-level keys of a network.
const TOP: [&str; 7] = ["seed", "time", "sample", "node", "link", "tunnel", "flow"];
/// Keys of a node.
const NODE_KEYS: [&str; 2] = ["name", "role"];
/// Keys of a link beside its settings.
const LINK_KEYS: [&str; 5] = ["name", "from", "to", "forward", "back"];
/// Keys of a flow beside those of its content.
const FLOW_KEYS: [&str; 8] = ["name", "kind", "from", "to", "through", "via", "ecn", "peer"];
/// Keys of the content of a flow.
const CONTENT_KEYS: [&str; 10] =
    ["bytes", "rate", "record", "reads", "deaf", "start", "video", "pace", "startup", "resume"];
/// Keys that only a connection of ours has.
const ONLY_OURS: [&str; 2] = ["reads", "deaf"];
/// The kinds of flows.
const KINDS: [&str; 6] = ["tidewire", "newreno", "cubic", "bbr", "udp", "peer"];
/// Longest name of a node. Chosen: the lab names a namespace after it.
const LONGEST_NAME: usize = 16;

impl Plan {
    /// Parses the text of the network scenario `path`. The path is used in error messages and to find the
    /// files beside it.
    ///
    /// # Errors
    /// See [`ScenarioProblem`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ScenarioError> {
        let reader = Reader { text, path };
        let document = reader.document()?;
        let table = document.get_ref();
        if let Some((key, _)) = table.iter().find(|(key, _)| !TOP.contains(&key.get_ref().as_ref())) {
            let problem = SettingError::UnknownKey { key: key.get_ref().to_string(), allowed: TOP.to_vec() };
            return Err(reader.error(key.span(), key.get_ref().to_string(), ScenarioProblem::Setting(problem)));
        }
        let seed = table.get_key_value("seed").map_or(Ok(1), |entry| reader.seed(entry))?;
        let mut plan = Self::new(seed, Topology::default());
        for (section, name) in reader.list(table, "node")? {
            let node = reader.node(name, section, &plan.topology)?;
            plan.topology.nodes.push(node);
        }
        for (section, name) in reader.list(table, "link")? {
            let joint = reader.link(name, section, seed, &plan.topology)?;
            plan.topology.links.push(joint);
        }
        for (section, name) in reader.list(table, "tunnel")? {
            let tunnel = reader.tunnel(name, section, &plan)?;
            plan.tunnels.push(tunnel);
        }
        plan.time = reader.time(table, "time")?;
        plan.sample = reader.time(table, "sample")?.unwrap_or(plan.sample);
        for (section, name) in reader.list(table, "flow")? {
            let flow = reader.flow_between(name, section, &plan)?;
            plan.flows.push(flow);
        }
        Ok(plan)
    }
}

type Section<'t, 'a> = &'t Spanned<DeValue<'a>>;

impl<'a> Reader<'a> {
    /// The sections of a list; none if the file does not have it.
    fn list<'t>(
        &self,
        table: &'t DeTable<'a>,
        name: &'static str,
    ) -> Result<Vec<(Section<'t, 'a>, &'static str)>, ScenarioError> {
        let Some((_, value)) = table.get_key_value(name) else { return Ok(Vec::new()) };
        let refuse = || self.refused(value, name, format!("a network has a list of these: write [[{name}]] for each"));
        Ok(value.get_ref().as_array().ok_or_else(refuse)?.iter().map(|section| (section, name)).collect())
    }

    fn time(&self, table: &DeTable<'a>, name: &str) -> Result<Option<Duration>, ScenarioError> {
        let Some((_, value)) = table.get_key_value(name) else { return Ok(None) };
        let text = value
            .get_ref()
            .as_str()
            .ok_or_else(|| self.error(value.span(), name.to_owned(), ScenarioProblem::NotText))?;
        let time = parse_duration(text).map_err(|error| self.refused(value, name, error.to_string()))?;
        match time.is_zero() {
            true => Err(self.refused(value, name, "this takes no time: write \"30s\" or so".to_owned())),
            false => Ok(Some(time)),
        }
    }

    /// The text of a key that has to be there.
    fn needed<'t>(
        &self,
        section: Section<'t, 'a>,
        name: &str,
        key: &str,
        example: &str,
    ) -> Result<(Section<'t, 'a>, &'t str), ScenarioError> {
        let table = self.table(name, section)?;
        let missing =
            || self.refused(section, &format!("{name}.{key}"), format!("this key is missing: write {example}"));
        let value = table.get(key).ok_or_else(missing)?;
        let not_text = || self.error(value.span(), format!("{name}.{key}"), ScenarioProblem::NotText);
        Ok((value, value.get_ref().as_str().ok_or_else(not_text)?))
    }

    /// A name that nothing else in `others` has.
    fn fresh<'n>(
        &self,
        (value, name): (Section<'_, 'a>, &'n str),
        key: &str,
        mut others: impl Iterator<Item = &'n str>,
    ) -> Result<String, ScenarioError> {
        let is_good = (1..=LONGEST_NAME).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !is_good {
            let text = format!("\"{name}\" is no name: write 1 to {LONGEST_NAME} letters, digits and -");
            return Err(self.refused(value, key, text));
        }
        match others.any(|other| other == name) {
            true => Err(self.refused(value, key, format!("there is another \"{name}\": choose a name of its own"))),
            false => Ok(name.to_owned()),
        }
    }

    fn node(&self, name: &str, section: Section<'_, 'a>, topology: &Topology) -> Result<Node, ScenarioError> {
        let table = self.table(name, section)?;
        self.texts(name, table, &[], |key, _| match NODE_KEYS.contains(&key) {
            true => Ok(()),
            false => Err(SettingError::UnknownKey { key: key.to_owned(), allowed: NODE_KEYS.to_vec() }),
        })?;
        let own = self.needed(section, name, "name", "name = \"a\"")?;
        let others = topology.nodes.iter().map(|node| node.name.as_str());
        let own = self.fresh(own, "node.name", others)?;
        let role = match table.get("role") {
            None => Role::Host,
            Some(value) => match value.get_ref().as_str() {
                Some("host") => Role::Host,
                Some("router") => Role::Router,
                Some("relay") => Role::Relay,
                other => {
                    let other = other.unwrap_or_default();
                    let text = format!("\"{other}\" is no role: write \"host\", \"router\" or \"relay\"");
                    return Err(self.refused(value, "node.role", text));
                }
            },
        };
        Ok(Node { name: own, role })
    }

    /// The node that a key names.
    fn node_of(
        &self,
        section: Section<'_, 'a>,
        name: &str,
        key: &str,
        topology: &Topology,
    ) -> Result<usize, ScenarioError> {
        let (value, text) = self.needed(section, name, key, &format!("{key} = \"a\", the name of a node"))?;
        topology.node(text).ok_or_else(|| {
            let names: Vec<_> = topology.nodes.iter().map(|node| node.name.as_str()).collect();
            let text = format!("there is no node \"{text}\"{}", nearest(text, &names));
            self.refused(value, &format!("{name}.{key}"), text)
        })
    }

    fn link(
        &self,
        name: &str,
        section: Section<'_, 'a>,
        seed: u64,
        topology: &Topology,
    ) -> Result<Joint, ScenarioError> {
        let table = self.table(name, section)?;
        let nodes = [self.node_of(section, name, "from", topology)?, self.node_of(section, name, "to", topology)?];
        self.different(section, name, nodes)?;
        let mut config = DuplexConfig::default();
        config.set_seed(seed_of_link(seed, topology.links.len()));
        let folder = self.path.parent().unwrap_or(Path::new(""));
        self.one_delay(name, table)?;
        self.texts(name, table, &LINK_KEYS, |key, text| config.set(Direction::Both, key, text, folder))?;
        for (key, direction) in [("forward", Direction::Forward), ("back", Direction::Back)] {
            if let Some(value) = table.get(key) {
                let name = format!("{name}.{key}");
                self.texts(&name, self.table(&name, value)?, &[], |key, text| {
                    config.set(direction, key, text, folder)
                })?;
            }
        }
        for one in [&config.forward, &config.back] {
            self.has_rate(section, name, one)?;
        }
        let own = match table.get("name") {
            None => nodes.map(|node| topology.nodes[node].name.clone()).join("-"),
            Some(_) => self.needed(section, name, "name", "name = \"access\"")?.1.to_owned(),
        };
        match topology.links.iter().any(|joint| joint.name == own) {
            true => Err(self.refused(section, "link.name", format!("there is another link \"{own}\": give it a name"))),
            false => Ok(Joint { name: own, nodes, config }),
        }
    }

    fn different(&self, section: Section<'_, 'a>, name: &str, [from, to]: [usize; 2]) -> Result<(), ScenarioError> {
        match from == to {
            true => Err(self.refused(section, &format!("{name}.to"), "name two different nodes".to_owned())),
            false => Ok(()),
        }
    }

    /// Refuses what has no meaning without a rate.
    fn has_rate(&self, section: Section<'_, 'a>, name: &str, config: &LinkConfig) -> Result<(), ScenarioError> {
        let needs =
            [("discipline", config.aqm.discipline != Discipline::DropTail), ("medium", config.mac.medium.is_some())];
        match needs.iter().find(|(_, is_set)| *is_set && config.capacity == Capacity::Unlimited) {
            Some((key, _)) => {
                let text = "it has no effect without a rate: write rate = \"25mbit\" or so".to_owned();
                Err(self.refused(section, &format!("{name}.{key}"), text))
            }
            None => config.check().map_err(|error| self.refused(section, &format!("{name}.slot"), error.to_string())),
        }
    }

    /// The nodes that a section names, which have a way between them.
    fn joined(&self, section: Section<'_, 'a>, name: &str, topology: &Topology) -> Result<[usize; 2], ScenarioError> {
        let nodes = [self.node_of(section, name, "from", topology)?, self.node_of(section, name, "to", topology)?];
        self.different(section, name, nodes)?;
        self.has_way(section, name, topology, nodes)
    }

    /// The same nodes, if they have a way between them.
    fn has_way(
        &self,
        section: Section<'_, 'a>,
        name: &str,
        topology: &Topology,
        nodes: [usize; 2],
    ) -> Result<[usize; 2], ScenarioError> {
        let [from, to] = nodes;
        if topology.way(&topology.routes(), from, to).is_none() {
            let [a, b] = nodes.map(|node| &topology.nodes[node].name);
            let text =
                format!("there is no way from {a} to {b}: add a link, or write role = \"router\" for a node between");
            return Err(self.refused(section, &format!("{name}.to"), text));
        }
        Ok(nodes)
    }

    fn flow_between(&self, name: &str, section: Section<'_, 'a>, plan: &Plan) -> Result<FlowPlan, ScenarioError> {
        let (nodes, via) = self.ends(name, section, &plan.topology)?;
        let table = self.table(name, section)?;
        let kind = match table.get("kind") {
            None => KINDS[0],
            Some(_) => {
                let (value, kind) = self.needed(section, name, "kind", "kind = \"cubic\"")?;
                let unknown = || self.refused(value, "flow.kind", format!("no such kind{}", nearest(kind, &KINDS)));
                KINDS.iter().find(|known| **known == kind).ok_or_else(unknown)?
            }
        };
        let (stream, has_end) = self.content(name, section, plan.seed, kind)?;
        if !has_end && plan.time.is_none() {
            let text = "the flow has no end: write bytes = \"48MB\", or time = \"30s\" at the top of the file";
            return Err(self.refused(section, &format!("{name}.bytes"), text.to_owned()));
        }
        let own = match table.get("name") {
            None => format!("{}", plan.flows.len() + 1),
            Some(_) => {
                let own = self.needed(section, name, "name", "name = \"call\"")?;
                self.fresh(own, "flow.name", plan.flows.iter().map(|flow| flow.name.as_str()))?
            }
        };
        let through = self.through(name, section, plan, (nodes, kind))?;
        let ([from, to], start) = (nodes, stream.start);
        let carrier = self.carrier(name, section, kind, stream, via)?;
        // Only the stream of a connection starts later.
        let start = if matches!(carrier, Carrier::Ours { .. }) { Duration::ZERO } else { start };
        Ok(FlowPlan { name: own, from, to, through, start, carrier })
    }

    /// The content of a flow as a stream, and whether it has an end.
    fn content(
        &self,
        name: &str,
        section: Section<'_, 'a>,
        seed: u64,
        kind: &str,
    ) -> Result<(Flow, bool), ScenarioError> {
        let table = self.table(name, section)?;
        let has = |key: &str| table.contains_key(key);
        for (key, _) in table {
            let text = key.get_ref().as_ref();
            // The record of a video over UDP is the length of its datagrams.
            let is_replaced = NOT_WITH_VIDEO.contains(&text) && !(kind == "udp" && text == "record");
            let problem = if has("video") && is_replaced {
                ScenarioProblem::NotWithVideo
            } else if kind != "tidewire" && (END_KEYS.contains(&text) || ONLY_OURS.contains(&text)) {
                ScenarioProblem::Setting(SettingError::Refused("this key is for kind = \"tidewire\" only".to_owned()))
            } else if kind == "udp" && VIDEO_KEYS.contains(&text) {
                let text = "frames over UDP are always live, and are not played: remove the key";
                ScenarioProblem::Setting(SettingError::Refused(text.to_owned()))
            } else if text == "via" && kind != KINDS[0] {
                ScenarioProblem::Setting(SettingError::Refused("only kind = \"tidewire\" crosses relays".to_owned()))
            } else if text == "peer" && kind != "peer" {
                ScenarioProblem::Setting(SettingError::Refused("this key is for kind = \"peer\" only".to_owned()))
            } else if text == "ecn" && !["newreno", "cubic", "bbr"].contains(&kind) {
                ScenarioProblem::Setting(SettingError::Refused("this key is for the kinds of TCP only".to_owned()))
            } else {
                continue;
            };
            return Err(self.error(key.span(), format!("{name}.{text}"), problem));
        }
        if kind == "udp" && !has("rate") && !has("video") {
            let text = "UDP has no rate of its own: write rate = \"2mbit\", or video = \"2mbit,60s\"".to_owned();
            return Err(self.refused(section, &format!("{name}.rate"), text));
        }
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let mut flow = Flow::bulk(End::Near, ENDLESS);
        // The video comes first, wherever it stands, because other keys change it.
        for of_video in [true, false] {
            self.texts(name, table, &[&FLOW_KEYS[..], &END_KEYS].concat(), |key, text| {
                match (CONTENT_KEYS.contains(&key), (key == "video") == of_video) {
                    (false, _) => Err(SettingError::UnknownKey { key: key.to_owned(), allowed: flow_keys() }),
                    (true, false) => Ok(()),
                    (true, true) => set_flow(&mut flow, key, text, folder, seed),
                }
            })?;
        }
        let has_end = has("video") || has("bytes");
        Ok((flow, has_end))
    }

    fn carrier(
        &self,
        name: &str,
        section: Section<'_, 'a>,
        kind: &str,
        stream: Flow,
        via: Vec<usize>,
    ) -> Result<Carrier, ScenarioError> {
        let table = self.table(name, section)?;
        let control = match kind {
            "tidewire" => {
                let config = self.ours(name, section, &[&FLOW_KEYS[..], &CONTENT_KEYS].concat())?;
                if !via.is_empty() {
                    self.recodes(name, section, &config)?;
                }
                return Ok(Carrier::Ours { ends: Box::new([config.clone(), config]), streams: vec![stream], via });
            }
            "udp" => return Ok(Carrier::Datagrams { content: content_of(&stream, true) }),
            "peer" => {
                let example = "peer = \"kcptun-fast3\", a name of the lab's table of peers";
                let peer = self.needed(section, name, "peer", example)?.1.to_owned();
                return Ok(Carrier::Peer { peer, content: content_of(&stream, false) });
            }
            "newreno" => Control::NewReno,
            "cubic" => Control::Cubic,
            _ => Control::Bbr,
        };
        let marks = match table.get("ecn").map(|value| (value, value.get_ref().as_str())) {
            None | Some((_, Some("off"))) => false,
            Some((_, Some("on"))) => true,
            Some((value, _)) => {
                return Err(self.refused(value, "flow.ecn", "write ecn = \"on\" or ecn = \"off\"".to_owned()));
            }
        };
        Ok(Carrier::Tcp { control, marks, content: content_of(&stream, false) })
    }

    /// The settings of both ends of a connection of ours: all keys of the section, except those in `but`.
    fn ours(&self, name: &str, section: Section<'_, 'a>, but: &[&str]) -> Result<Config, ScenarioError> {
        let table = self.table(name, section)?;
        let mut config = Config::builder();
        for of_profile in [true, false] {
            self.texts(name, table, but, |key, text| {
                if (key == "profile") == of_profile { set_end(&mut config, key, text) } else { Ok(()) }
            })?;
        }
        config.build().map_err(|error| self.refused(section, name, error.to_string()))
    }

    fn refused(&self, section: Section<'_, 'a>, key: &str, text: String) -> ScenarioError {
        self.error(section.span(), key.to_owned(), ScenarioProblem::Setting(SettingError::Refused(text)))
    }
}

fn flow_keys() -> Vec<&'static str> {
    [&FLOW_KEYS[..], &CONTENT_KEYS, &END_KEYS].concat()
}

/// The content of a stream. `always_live` is for what cannot wait.
fn content_of(stream: &Flow, always_live: bool) -> Content {
    let mut content = Content::of_stream(stream);
    if let (Content::Video { video, .. }, true) = (&mut content, always_live) {
        video.pace = Pace::Live;
    }
    content
}
