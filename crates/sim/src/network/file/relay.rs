//! The relays of a scenario file, and the flows across them.

use tidewire_proto::config::Config;
use tidewire_proto::relay;
use tidewire_units::nearest;

use super::{Reader, Section};
use crate::network::topology::{Role, Topology};
use crate::scenario::ScenarioError;

impl<'a> Reader<'a> {
    /// The ends of a flow, and the relays between them that `via` names, in their order. Each has a way to
    /// the next.
    pub(super) fn ends(
        &self,
        name: &str,
        section: Section<'_, 'a>,
        topology: &Topology,
    ) -> Result<([usize; 2], Vec<usize>), ScenarioError> {
        if self.table(name, section)?.get("via").is_none() {
            return Ok((self.joined(section, name, topology)?, Vec::new()));
        }
        let nodes = [self.node_of(section, name, "from", topology)?, self.node_of(section, name, "to", topology)?];
        self.different(section, name, nodes)?;
        let (value, text) = self.needed(section, name, "via", "via = \"r\", or \"r, s\" for two relays")?;
        let is_relay = |node: &usize| topology.nodes[*node].role == Role::Relay;
        let relay = |wanted: &str| {
            topology.node(wanted).filter(is_relay).ok_or_else(|| {
                let names: Vec<_> = (0..topology.nodes.len()).filter(is_relay).collect();
                let names: Vec<_> = names.iter().map(|&node| topology.nodes[node].name.as_str()).collect();
                let text = match names.is_empty() {
                    true => format!("there is no relay \"{wanted}\": write role = \"relay\" for a node"),
                    false => format!("there is no relay \"{wanted}\"{}", nearest(wanted, &names)),
                };
                self.refused(value, &format!("{name}.via"), text)
            })
        };
        let via: Vec<_> = text.split(',').map(|word| relay(word.trim())).collect::<Result<_, _>>()?;
        let stations = [&[nodes[0]][..], &via, &[nodes[1]]].concat();
        for hop in stations.windows(2) {
            if hop[0] == hop[1] {
                let text = "a relay stands beside itself: name each once".to_owned();
                return Err(self.refused(value, &format!("{name}.via"), text));
            }
            self.has_way(section, name, topology, [hop[0], hop[1]])?;
        }
        Ok((nodes, via))
    }

    /// Refuses a profile that no hop can follow.
    pub(super) fn recodes(&self, name: &str, section: Section<'_, 'a>, config: &Config) -> Result<(), ScenarioError> {
        match relay::relaying(config) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.refused(section, &format!("{name}.profile"), error.to_string())),
        }
    }
}
