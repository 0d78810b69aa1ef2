//! What the tests of profiles share: a pair of ends with one profile, and the flow of half load.

use tidewire_proto::config::Config;
use tidewire_proto::profile::Profile;

use super::*;

pub fn profile(text: &str) -> Profile {
    text.parse().expect(text)
}

/// Both ends send with this profile. `loss` holds in both directions.
pub fn trial(profile: Profile, loss: &str, flow: Flow, seed: u64) -> Trial {
    let mut link = link(&[(Direction::Both, "loss", loss), (Direction::Both, "queue", "60ms")]);
    link.set_seed(seed);
    let mut trial = Trial::new(link, vec![flow], seed);
    trial.near = Config::builder().profile(profile).build().expect("in range");
    trial.far = trial.near.clone();
    trial
}

/// Records of 1,200 bytes at half of the link's rate.
pub fn half_load(bytes: u64) -> Flow {
    Flow { record: 1_200, ..Flow::paced(End::Near, bytes, 12_500_000 / 8) }
}
