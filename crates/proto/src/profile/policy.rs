//! The text of a POLICY frame: the code, layout and redundancy that the initiator requests from the responder
//! (docs/wire.md section 5).
//!
//! `connection/policy.rs` sends and receives it. Invariant: a profile from the peer's text keeps to the same
//! bounds as our own choices, and its choices fit together.

use tidewire_codec::Code;

use super::{Layout, Profile};
use crate::redundancy::{BucketBlocks, PipelineBlocks, Proactive, Ratio, Redundancy};
use crate::wire::{CodeName, CodeSet, MAX_TEXT, parse_code};

/// Layouts by their names.
const LAYOUTS: [(&str, Layout); 2] = [("sliding", Layout::Sliding), ("generations", Layout::Generations)];

/// The limits of what a responder grants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The codes that the initiator decodes.
    pub codes: CodeSet,
    /// Proactive repair divided by source bytes.
    pub max_overhead: f64,
    /// Longest span that both ends allow.
    pub max_span: u16,
}

impl Profile {
    /// Code, layout and redundancy, which are what a POLICY changes.
    fn coding(&self) -> (Code, Layout, Redundancy) {
        (self.code, self.layout, self.redundancy)
    }

    /// Whether code, layout and redundancy are those of the default profile.
    pub(crate) fn codes_as_default(&self) -> bool {
        self.coding() == Self::default().coding()
    }

    /// The text that requests this profile; `None` if no text describes it.
    pub(crate) fn policy_text(&self) -> Option<String> {
        let (layout, _) = LAYOUTS.iter().find(|(_, layout)| *layout == self.layout)?;
        let text = format!("{layout} {} {}", CodeName(self.code), self.redundancy);
        // A custom policy has its own name, which no peer knows, and a number can be longer than a frame.
        (text.len() <= MAX_TEXT && self.with_policy(&text)?.coding() == self.coding()).then_some(text)
    }

    /// This profile with the changes that `text` requests; `None` if it requests something unknown.
    fn with_policy(self, text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (layout, code, redundancy) = (words.next()?, words.next()?, words.next()?);
        let (_, layout) = *LAYOUTS.iter().find(|(name, _)| *name == layout)?;
        let asked = Self { layout, code: parse_code(code).ok()?, redundancy: redundancy.parse().ok()?, ..self };
        (words.next().is_none() && asked.check().is_ok()).then_some(asked)
    }

    /// This profile with the changes that the peer's `text` requests, if they are within `bounds`.
    pub(crate) fn granted(self, text: &str, bounds: Bounds) -> Option<Self> {
        let asked = self.with_policy(text)?;
        let share = match asked.redundancy.proactive {
            Proactive::None | Proactive::Adaptive => 0.0,
            Proactive::Every { spacing } => 1.0 / (spacing - 1.0),
            Proactive::Block { k, r } if k <= bounds.max_span => f64::from(r) / f64::from(k),
            Proactive::Pipeline(PipelineBlocks { symbols, ratio, .. }) if symbols <= bounds.max_span => match ratio {
                Ratio::Fixed(ratio) => ratio - 1.0,
                Ratio::Least | Ratio::Combo | Ratio::Planned => 0.0,
                Ratio::ComboPrinted => return None,
            },
            Proactive::Bucket(BucketBlocks { cap, gamma, is_fixed: false }) if cap <= bounds.max_span => gamma - 1.0,
            // These keep to this end's own bound of overhead.
            Proactive::Sphinx(blocks) if blocks.symbols <= bounds.max_span => 0.0,
            Proactive::Rcdp(blocks) if blocks.symbols <= bounds.max_span && !blocks.basic => 0.0,
            // The basic form of rcdp sends repairs without a bound until the initiator reports a block as
            // recovered. The fixed form of bucket fills a block for each symbol.
            Proactive::Block { .. }
            | Proactive::Sphinx(_)
            | Proactive::Rcdp(_)
            | Proactive::Pipeline(_)
            | Proactive::Bucket(_)
            | Proactive::Custom(_) => return None,
        };
        (share <= bounds.max_overhead && bounds.codes.contains(asked.code)).then_some(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{ARQ, STREAM, block, rcdp};
    use crate::redundancy::Answer;

    const BOUNDS: Bounds = Bounds { codes: CodeSet(0b100_1011), max_overhead: 0.5, max_span: 256 };

    fn profile(text: &str) -> Profile {
        text.parse().expect("a profile")
    }

    #[test]
    fn a_profile_is_granted_as_it_was_asked_for() {
        let open = Redundancy { answer: Answer::Open, ..Redundancy::every(5.0) };
        for (profile, text) in [
            (ARQ, "sliding rlc none"),
            (Profile { redundancy: open, ..STREAM }, "sliding rlc every:5,open"),
            (block(32, 8), "generations cauchy block:32,8"),
            (Profile { code: Code::Rlc16, ..block(200, 100) }, "generations rlc16 block:200,100"),
            (Profile { code: Code::Rlc, ..rcdp(84) }, "generations rlc rcdp:84"),
            (rcdp(84), "generations raptorq rcdp:84"),
            (profile("bucket"), "generations rlc16 bucket:15,1.25"),
            (profile("pipeline"), "sliding rlc pipeline:16,1.25"),
            (profile("pipeline:64,combo,systematic"), "sliding rlc pipeline:64,combo,systematic"),
        ] {
            assert_eq!(profile.policy_text().as_deref(), Some(text));
            let granted = STREAM.granted(text, BOUNDS).expect(text);
            assert_eq!((granted.coding(), granted.rate_control), (profile.coding(), STREAM.rate_control));
        }
        assert!(STREAM.codes_as_default() && !ARQ.codes_as_default());
        // The number has 309 digits.
        assert_eq!(Profile { redundancy: Redundancy::every(f64::MAX), ..STREAM }.policy_text(), None);
    }

    #[test]
    fn what_a_hostile_text_asks_for_is_not_granted() {
        for text in [
            "",
            " ",
            "sliding",
            "sliding rlc",
            "sliding rlc every:5 more",
            "sliding  rlc every:5",
            "spinning rlc every:5",
            "sliding cauchy every:5",
            "sliding raptor every:5",
            "sliding rlc every:1.0001",
            "sliding rlc every:NaN",
            "sliding rlc every:-5",
            "sliding rlc every:2.9",
            "sliding rlc block:32,8",
            "generations rlc every:5",
            "generations rlc adaptive",
            "generations rlc16 block:0,1",
            "generations rlc16 block:257,1",
            "generations rlc16 block:1024,1024",
            "generations rlc16 block:32,17",
            "generations cauchy block:180,80",
            "generations cauchy block:32,8,deficit",
            "generations rlc rcdp:0",
            "generations rlc rcdp:257",
            "generations rlc rcdp:84,basic",
            "sliding rlc rcdp:84",
            "sliding rlc pipeline:0,1",
            "sliding rlc pipeline:65,1",
            "sliding rlc pipeline:16,1.6",
            "sliding rlc pipeline:16,combo-printed",
            "sliding rlc pipeline:16,1.25,resend",
            "generations rlc pipeline:16,1.25",
            "sliding rlc bucket:15,1.25",
            "generations rlc bucket:15,1.6",
            "generations rlc bucket:15,1.25,fixed",
            "generations rlc bucket:15,1.25,resend",
            "every:5",
            "\u{1b}[2J",
        ] {
            assert_eq!(STREAM.granted(text, BOUNDS), None, "{text:?}");
        }
        assert_eq!(STREAM.granted("generations cauchy block:32,8", Bounds { codes: CodeSet::RLC, ..BOUNDS }), None);
        assert_eq!(STREAM.granted("sliding rlc every:5", Bounds { max_overhead: 0.2, ..BOUNDS }), None);
    }
}
