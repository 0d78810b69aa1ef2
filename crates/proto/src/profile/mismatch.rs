//! Choices on the axes that do not fit together, and what to choose instead.
//!
//! [`Config::validate`](crate::config::Config::validate) calls it for every configuration. Invariant: an
//! accepted profile keeps its layout for the whole life of a lane, and its code has every row that its
//! policies use.

use tidewire_codec::Code;

use super::{Layout, Profile};
use crate::redundancy::{Answer, PipelineBlocks, Proactive, RcdpBlocks, Redundancy, SphinxBlocks};
use crate::wire::code_name;

/// Maximum number of source and repair symbols in a generation under a Cauchy code over GF(2^8): its 256
/// elements, minus the one with which columns begin.
pub(super) const MOST_CAUCHY: u16 = 255;

/// Two choices of a profile that do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// The redundancy closes generations, but the lane slides.
    #[error(
        "redundancy {0} needs generations, but this profile slides: take the profile \
                     block:K,R, sphinx, rcdp or bucket"
    )]
    NeedsGenerations(Proactive),
    /// The redundancy mixes any adjacent symbols, but the lane is in generations.
    #[error(
        "redundancy {0} needs a sliding window, but this profile is in generations: take the profile \
                 stream, or redundancy none"
    )]
    NeedsSliding(Proactive),
    /// The answer mixes any adjacent symbols, but the lane is in generations.
    #[error(
        "the answer {0} needs a sliding window, but this profile is in generations: take the answer open \
                 or resend, or deficit with bucket"
    )]
    AnswerNeedsSliding(Answer),
    /// The answer sends lost source symbols again, but the redundancy sends combinations instead of them.
    #[error(
        "the answer {0} sends lost source symbols again, and the redundancy {1} sends none: take the \
                 answer deficit or open"
    )]
    AnswerNeedsSources(Answer, Proactive),
    /// The answer is for the blocks of `sphinx`.
    #[error("the answer {0} is for the blocks of sphinx: take the profile sphinx")]
    AnswerNeedsBlocks(Answer),
    /// The code has rows for closed generations only, but the lane slides.
    #[error("code {} needs generations, but this profile slides: take the code rlc, or the profile block:K,R", code_name(*.0))]
    CodeNeedsGenerations(Code),
    /// The code does not send source symbols, and the redundancy has no repairs that replace them.
    #[error("code {} sends repairs instead of source symbols: take the redundancy sphinx:K or block:K,R", code_name(*.0))]
    CodeNeedsBlocks(Code),
    /// The repairs of the code do not replace any source symbols of a block, and the redundancy sends nothing
    /// else.
    #[error("code {} needs source symbols that are sent again, and this redundancy sends only repairs: take the \
                 code rlc, or the redundancy sphinx:K", code_name(*.0))]
    CodeNeedsAnswers(Code),
    /// A Cauchy code has fewer rows than `k` and `r` together need.
    #[error("code cauchy has {MOST_CAUCHY} source and repair symbols in a generation at most, and {k} with {r} are \
                 {}: take the code rlc16, or smaller blocks", u32::from(*.k) + u32::from(*.r))]
    TooFewRows {
        /// Source symbols of a generation.
        k: u16,
        /// Repairs of a generation.
        r: u16,
    },
}

impl Profile {
    /// Checks that the profile's choices fit together.
    ///
    /// # Errors
    /// The first pair of choices that do not fit together.
    pub fn check(&self) -> Result<(), Mismatch> {
        self.check_layout()?;
        let Redundancy { proactive, answer } = self.redundancy;
        match (self.layout, self.code, proactive) {
            // The built-in policies use no row of a sliding lane. Custom policies are responsible for their
            // own rows.
            (Layout::Sliding, code, _) if code != Code::Rlc => {
                let is_custom = matches!(proactive, Proactive::Custom(_)) || matches!(answer, Answer::Custom(_));
                if is_custom { Ok(()) } else { Err(Mismatch::CodeNeedsGenerations(code)) }
            }
            (Layout::Generations, code, Proactive::None) if !code.is_systematic() => {
                Err(Mismatch::CodeNeedsBlocks(code))
            }
            (Layout::Generations, code, Proactive::Rcdp(_) | Proactive::Bucket(_))
                if !code.is_systematic() || code.is_sparse() =>
            {
                Err(Mismatch::CodeNeedsAnswers(code))
            }
            (Layout::Generations, Code::Cauchy, Proactive::Block { k, r }) if k.saturating_add(r) > MOST_CAUCHY => {
                Err(Mismatch::TooFewRows { k, r })
            }
            (
                Layout::Generations,
                Code::Cauchy,
                Proactive::Sphinx(SphinxBlocks { symbols: k, .. }) | Proactive::Rcdp(RcdpBlocks { symbols: k, .. }),
            ) if k >= MOST_CAUCHY => Err(Mismatch::TooFewRows { k, r: 1 }),
            _ => Ok(()),
        }
    }

    /// Checks that the policies fit the layout: in generations every repair belongs to one generation.
    pub(crate) fn check_layout(&self) -> Result<(), Mismatch> {
        let Redundancy { proactive, answer } = self.redundancy;
        match (self.layout, proactive) {
            (
                Layout::Generations,
                Proactive::None | Proactive::Block { .. } | Proactive::Sphinx(_) | Proactive::Rcdp(_),
            ) => match answer {
                Answer::Open | Answer::Resend => Ok(()),
                Answer::Icm(_) if matches!(proactive, Proactive::Sphinx(_)) => Ok(()),
                Answer::Icm(_) => Err(Mismatch::AnswerNeedsBlocks(answer)),
                answer => Err(Mismatch::AnswerNeedsSliding(answer)),
            },
            (Layout::Generations, Proactive::Bucket(_)) => match answer {
                Answer::Open | Answer::Deficit | Answer::Custom(_) => Ok(()),
                Answer::Resend => Err(Mismatch::AnswerNeedsSources(answer, proactive)),
                Answer::Icm(_) => Err(Mismatch::AnswerNeedsBlocks(answer)),
                answer => Err(Mismatch::AnswerNeedsSliding(answer)),
            },
            (Layout::Generations, Proactive::Every { .. } | Proactive::Pipeline(_) | Proactive::Adaptive) => {
                Err(Mismatch::NeedsSliding(proactive))
            }
            (
                Layout::Sliding,
                Proactive::Block { .. } | Proactive::Sphinx(_) | Proactive::Rcdp(_) | Proactive::Bucket(_),
            ) => Err(Mismatch::NeedsGenerations(proactive)),
            (_, Proactive::Custom(_)) => Ok(()),
            (Layout::Sliding, Proactive::Pipeline(PipelineBlocks { systematic: false, .. }))
                if answer == Answer::Resend =>
            {
                Err(Mismatch::AnswerNeedsSources(answer, proactive))
            }
            (Layout::Sliding, _) if matches!(answer, Answer::Icm(_)) => Err(Mismatch::AnswerNeedsBlocks(answer)),
            (Layout::Sliding, _) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{SPHINX_PRINTED, STREAM, block, rcdp, rcdp_basic, sphinx};
    use crate::redundancy::Trigger;

    const LT: Code = Code::Lt { c_milli: 100, delta_milli: 500 };
    const ICM: Answer = Answer::Icm(Trigger::Settled);

    #[test]
    fn what_does_not_go_together_is_named_with_what_does() {
        let every = Redundancy::every(5.0);
        let bucket: Profile = "bucket".parse().expect("a profile");
        let pipeline: Redundancy = "pipeline:16,1.25".parse().expect("a redundancy");
        let refused = |profile: Profile| profile.check().expect_err("a mismatch").to_string();
        for (profile, words) in [
            (Profile { redundancy: every, ..block(32, 8) }, ["redundancy every:5 needs a sliding", "stream"]),
            (Profile { redundancy: block(32, 8).redundancy, ..STREAM }, ["block:32,8 needs generations", "block:K,R"]),
            (Profile { code: Code::Cauchy, ..STREAM }, ["code cauchy needs generations", "rlc"]),
            (Profile { code: Code::Rlc16, ..STREAM }, ["code rlc16 needs generations", "rlc"]),
            (Profile { code: Code::RaptorQ, ..STREAM }, ["code raptorq needs generations", "rlc"]),
            (Profile { code: Code::Cauchy, ..block(250, 6) }, ["250 with 6 are 256", "rlc16"]),
            (Profile { code: Code::Cauchy, ..sphinx(255) }, ["255 with 1 are 256", "rlc16"]),
            (Profile { code: LT, redundancy: Redundancy::ARQ, ..block(32, 8) }, ["code lt sends repairs", "sphinx:K"]),
            (Profile { redundancy: sphinx(9).redundancy, ..STREAM }, ["sphinx:9 needs generations", "sphinx, rcdp"]),
            (Profile { redundancy: rcdp(9).redundancy, ..STREAM }, ["rcdp:9 needs generations", "rcdp or"]),
            (Profile { code: LT, ..rcdp(84) }, ["code lt", "sphinx:K"]),
            (Profile { code: Code::SemiRandomLt { degree: 9 }, ..rcdp_basic(84) }, ["sends only repairs", "rlc"]),
            (Profile { code: Code::Cauchy, ..rcdp(255) }, ["255 with 1 are 256", "rlc16"]),
            (Profile { redundancy: bucket.redundancy, ..STREAM }, ["bucket:15,1.25 needs generations", "or bucket"]),
            (Profile { code: LT, ..bucket }, ["code lt", "sphinx:K"]),
            (
                Profile { redundancy: Redundancy { answer: Answer::Resend, ..bucket.redundancy }, ..bucket },
                ["the answer resend", "deficit or open"],
            ),
            (
                Profile { redundancy: Redundancy { answer: Answer::Planned, ..bucket.redundancy }, ..bucket },
                ["the answer planned", "bucket"],
            ),
            (Profile { redundancy: Redundancy { answer: ICM, ..bucket.redundancy }, ..bucket }, ["icm", "sphinx"]),
            (Profile { redundancy: pipeline, ..block(32, 8) }, ["pipeline:16,1.25 needs a sliding", "stream"]),
            (
                Profile { redundancy: Redundancy { answer: Answer::Resend, ..pipeline }, ..STREAM },
                ["the answer resend", "deficit or open"],
            ),
            (Profile { redundancy: Redundancy { answer: ICM, ..pipeline }, ..STREAM }, ["icm", "sphinx"]),
            (
                Profile { redundancy: Redundancy { answer: ICM, ..every }, ..STREAM },
                ["the answer icm", "profile sphinx"],
            ),
            (Profile { redundancy: Redundancy { answer: ICM, ..Redundancy::ARQ }, ..block(32, 8) }, ["icm", "sphinx"]),
            (
                Profile {
                    redundancy: Redundancy { answer: Answer::Deficit, ..block(32, 8).redundancy },
                    ..block(32, 8)
                },
                ["the answer deficit", "open"],
            ),
        ] {
            let text = refused(profile);
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
        for code in [Code::Rlc, Code::Cauchy, Code::Rlc16] {
            assert_eq!(Profile { code, ..block(247, 8) }.check(), Ok(()));
        }
        for text in ["pipeline:16,1.25,open", "pipeline:16,1.25,planned", "pipeline:16,1.25,systematic,resend"] {
            assert_eq!(Profile { redundancy: text.parse().expect(text), ..STREAM }.check(), Ok(()), "{text}");
        }
        for code in [Code::Rlc, Code::Rlc16, Code::RsFft, Code::RaptorQ, Code::Cauchy] {
            let open = Redundancy { answer: Answer::Open, ..bucket.redundancy };
            assert_eq!(Profile { code, ..bucket }.check(), Ok(()));
            assert_eq!(Profile { code, redundancy: open, ..bucket }.check(), Ok(()));
        }
        assert_eq!(block(1_024, 1_024).check(), Ok(()));
        for code in [Code::Rlc, Code::Rlc16, Code::RsFft, Code::RaptorQ, Code::Cauchy] {
            assert_eq!(Profile { code, ..rcdp(254) }.check(), Ok(()));
        }
        for profile in [block(1_024, 1_024), rcdp(1_024), rcdp_basic(1_024), sphinx(1_024)] {
            assert_eq!(Profile { code: Code::RaptorQ, ..profile }.check(), Ok(()));
        }
        for code in [LT, Code::Cauchy, Code::Rlc, Code::SemiRandomLt { degree: 3 }] {
            for profile in [sphinx(100), SPHINX_PRINTED] {
                assert_eq!(Profile { code, ..profile }.check(), Ok(()));
            }
        }
    }
}
