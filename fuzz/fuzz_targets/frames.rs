//! Passes any payload through the frame parser. An error ends the iteration; a frame that parses must survive
//! writing and reading.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidewire_proto::wire::{Frame, Frames, VARINT_MAX, Writer};

fuzz_target!(|data: &[u8]| {
    let mut buffer = vec![0; 8 * data.len() + 16];
    for frame in Frames::new(data) {
        let Ok(frame) = frame else { break };
        let mut w = Writer::new(&mut buffer);
        frame.emit(&mut w).expect("no frame grows eightfold");
        assert_eq!(Frames::new(w.written()).next(), Some(Ok(frame)));
        if let Frame::Feedback(feedback) = frame {
            let mut below = feedback.largest().map_or(0, |largest| largest + 2);
            for range in feedback.received() {
                assert!(range.start() <= range.end() && range.end() + 2 <= below);
                below = *range.start();
            }
            for lane in feedback.lanes() {
                assert!(lane.edge <= lane.end && lane.edge <= lane.limit && lane.limit.0 <= VARINT_MAX);
                let mut above = lane.edge;
                for run in lane.undecoded {
                    assert!(above <= run.start && run.start < run.end && run.end <= lane.end);
                    above = run.end.next();
                }
            }
            feedback.stream_credit().into_iter().flat_map(|(_, limits)| limits).for_each(drop);
        }
    }
});
