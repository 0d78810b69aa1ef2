//! Checks that dependencies point in one direction: a crate uses only crates before it in [`CRATES`], and a
//! room of `proto` only rooms before it in [`ROOMS`] (docs/adr/0001-five-axes.md).
//!
//! The dependencies of crates come from `cargo metadata`; those of rooms from the paths in `proto`'s
//! sources, as [`circles`] reads them; it also finds what has no order in every crate. Unit tests are exempt.

use serde_json::Value;

use crate::circles::{self, Source};
use crate::context::Context;

/// Crates by floor, the lowest first. Crates of one floor do not use each other.
const CRATES: [&str; 9] = [
    "tidewire-testing tidewire-figures",
    "tidewire-codec tidewire-units tidewire-model",
    "tidewire-proto",
    "tidewire-sim tidewire",
    "tidewire-proxy tidewire-recording tidewire-transfer tidewire-forward tidewire-tunnel tidewire-command",
    "tidewire-dashboard tidewire-live",
    "tidewire-lab tidewire-cli tidewire-capi tidewire-py",
    "tidewire-papers",
    "tidewire-lab-cli tidewire-measure",
];

/// Rooms, the lowest first. A file beside the folders is a room too.
const ROOMS: &str = "time codel counts ids close event custom hex wire crypto handshake path rate redundancy stats \
    profile trace lane recode config connection tunnel endpoint relay";

/// Rooms that handle packets and not symbols: they must not use the codec.
const WITHOUT_SYMBOLS: [&str; 2] = ["path", "rate"];

/// Fails if a crate or room uses a higher one, or modules use each other in a circle. Prints every such use.
pub fn check(context: &Context) -> Result<(), String> {
    let mut wrong = Vec::new();
    for manifest in ["Cargo.toml", "crates/py/Cargo.toml"] {
        let packages = context.packages(&format!("--no-deps --manifest-path {manifest}"))?;
        wrong.extend(offences_of_crates(&packages)?);
        wrong.extend(circles::of_crates(&packages)?);
    }
    for source in circles::sources(&context.root.join("crates/proto/src"))? {
        wrong.extend(offences(&source)?);
    }
    wrong.iter().for_each(|line| println!("{line}"));
    match wrong.len() {
        0 => Ok(()),
        count => Err(format!(
            "{count} uses of a higher crate or room, or circles: move the item to a lower one, or reverse the dependency"
        )),
    }
}

/// The dependencies of packages that do not point to a lower floor.
fn offences_of_crates(packages: &[Value]) -> Result<Vec<String>, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let floor = |name: &str| CRATES.iter().position(|floor| floor.split(' ').any(|known| known == name));
    let mut wrong = Vec::new();
    for package in packages {
        let name = text(&package["name"]);
        if name == "xtask" {
            continue;
        }
        let own = floor(&name).ok_or_else(|| format!("crate {name} is not in the list of xtask/src/rooms.rs"))?;
        let used = package["dependencies"].as_array().into_iter().flatten().map(|used| text(&used["name"]));
        let is_wrong = |used: &String| floor(used).is_some_and(|floor| floor >= own);
        wrong.extend(used.filter(is_wrong).map(|used| format!("{name}: depends on {used}, which is not below it")));
    }
    Ok(wrong)
}

/// The uses of higher rooms in one file.
fn offences(Source { name, text, module, uses }: &Source) -> Result<Vec<String>, String> {
    let own = rank(module).ok_or_else(|| format!("{name}: room {module} is not in the list of xtask/src/rooms.rs"))?;
    let higher = uses.iter().filter(|used| rank(used).is_some_and(|rank| rank > own));
    let mut wrong: Vec<_> = higher.map(|used| format!("{name}: uses {used}, a room above it")).collect();
    if WITHOUT_SYMBOLS.contains(&&**module) && text.contains("tidewire_codec") {
        wrong.push(format!("{name}: uses the codec, but knows no symbols"));
    }
    Ok(wrong)
}

fn rank(room: &str) -> Option<usize> {
    ROOMS.split_whitespace().position(|known| known == room)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::File;
    use serde_json::json;

    #[test]
    fn a_crate_depends_on_those_below_it() {
        let package = |name, used| json!({"name": name, "dependencies": [{"name": "serde"}, {"name": used}]});
        let wrong = |name, used| offences_of_crates(&[package(name, used)]).map(|wrong| wrong.len());
        assert_eq!(wrong("tidewire-papers", "tidewire-lab"), Ok(0));
        for (name, used) in [("tidewire-lab", "tidewire-cli"), ("tidewire", "tidewire-sim")] {
            assert_eq!(wrong(name, used), Ok(1));
        }
        assert!(wrong("tidewire-attic", "tidewire").is_err());
    }

    #[test]
    fn a_lower_room_may_not_use_a_higher_one() {
        let text =
            "use crate::{Time, path::Rtt};\nfn f() { crate::connection::g(); }\nmod tests { use crate::endpoint::E; }";
        let offences = |name: &str, text: &str| {
            offences(&Source::new(File { name: name.into(), text: text.into() }).unwrap()).map(|found| found.len())
        };
        assert_eq!(
            ["lane/sender.rs", "wire/frame.rs", "endpoint.rs"].map(|name| offences(name, text)),
            [Ok(1), Ok(2), Ok(0)]
        );
        assert!(offences("attic/x.rs", text).is_err());
        let symbols = "use tidewire_codec::SourceId;";
        assert_eq!((offences("lane/sender.rs", symbols), offences("path/flight.rs", symbols)), (Ok(0), Ok(1)));
    }
}
