//! The tunnels of a scenario file, and the flows through them.

use tidewire_units::nearest;

use super::{KINDS, Reader, Section};
use crate::network::plan::{Plan, TunnelPlan};
use crate::scenario::ScenarioError;
use crate::settings::SettingError;
use crate::work::END_KEYS;

/// Keys of a tunnel beside the settings of its ends.
pub(super) const TUNNEL_KEYS: [&str; 3] = ["name", "from", "to"];

impl<'a> Reader<'a> {
    /// A tunnel. Its settings are those of a connection of ours.
    pub(super) fn tunnel(
        &self,
        name: &str,
        section: Section<'_, 'a>,
        plan: &Plan,
    ) -> Result<TunnelPlan, ScenarioError> {
        let [from, to] = self.joined(section, name, &plan.topology)?;
        let table = self.table(name, section)?;
        let own = match table.get("name") {
            None => (plan.tunnels.len() + 1).to_string(),
            Some(_) => self.needed(section, name, "name", "name = \"t\"")?.1.to_owned(),
        };
        let value = table.get("name").unwrap_or(section);
        let own = self.fresh((value, &own), "tunnel.name", plan.tunnels.iter().map(|tunnel| tunnel.name.as_str()))?;
        let mut settings = Vec::new();
        self.texts(name, table, &TUNNEL_KEYS, |key, text| match END_KEYS.contains(&key) {
            true => {
                settings.push((key.to_owned(), text.to_owned()));
                Ok(())
            }
            false => {
                let allowed = [&TUNNEL_KEYS[..], &END_KEYS].concat();
                Err(SettingError::UnknownKey { key: key.to_owned(), allowed })
            }
        })?;
        // A program that has no latency to keep refuses this.
        if let (Some(value), None) = (table.get("deliver"), table.get("latency")) {
            let text = "this is the share that keeps the latency: write latency = \"80ms\" or so too";
            return Err(self.refused(value, &format!("{name}.deliver"), text.to_owned()));
        }
        let config = self.ours(name, section, &TUNNEL_KEYS)?;
        Ok(TunnelPlan { name: own, from, to, config: Box::new(config), settings, batch: None })
    }

    /// The number of the tunnel that a flow between `nodes` goes through.
    pub(super) fn through(
        &self,
        name: &str,
        section: Section<'_, 'a>,
        plan: &Plan,
        (nodes, kind): ([usize; 2], &str),
    ) -> Result<Option<usize>, ScenarioError> {
        if self.table(name, section)?.get("through").is_none() {
            return Ok(None);
        }
        let (value, wanted) = self.needed(section, name, "through", "through = \"t\", the name of a tunnel")?;
        let refuse = |text: String| Err(self.refused(value, &format!("{name}.through"), text));
        if kind == KINDS[0] {
            let text = "a connection of ours does not go through a tunnel: write kind = \"cubic\", newreno, bbr or udp";
            return refuse(text.to_owned());
        }
        let names: Vec<_> = plan.tunnels.iter().map(|tunnel| tunnel.name.as_str()).collect();
        let Some(number) = names.iter().position(|name| *name == wanted) else {
            return refuse(match names.is_empty() {
                true => format!("there is no tunnel \"{wanted}\": write a [[tunnel]] with this name"),
                false => format!("there is no tunnel \"{wanted}\"{}", nearest(wanted, &names)),
            });
        };
        let ends = [plan.tunnels[number].from, plan.tunnels[number].to];
        if nodes != ends && nodes != [ends[1], ends[0]] {
            let [from, to] = ends.map(|node| &plan.topology.nodes[node].name);
            return refuse(format!(
                "the ends of this tunnel are \"{from}\" and \"{to}\": write these as from and to of the flow, in either order"
            ));
        }
        Ok(Some(number))
    }
}
