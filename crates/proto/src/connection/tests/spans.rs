//! What FEEDBACK reports to a peer whose spans are shorter than ours.

use super::*;

/// docs/wire.md section 5: a region that is longer than the peer's spans does not tell the peer which of them
/// lack something.
#[test]
fn regions_are_as_long_as_the_longest_span_that_both_ends_allow() {
    for (ours, theirs, longest) in [(256, 8, 8), (8, 256, 8), (64, 64, 64)] {
        let config = Config::builder().max_span(ours).build().expect("in range");
        let (mut us, mut peer) = accepted(config, Parameters { max_span: theirs, ..Parameters::default() });
        for n in 0..128 {
            let data = &[7; 1_000];
            let frame = SymbolFrame::Stream { stream: 0, offset: n * 1_000, fin: false, data, data_at: 0 };
            peer.symbol(&mut us, 2 * n + 1, &[frame]);
        }
        let regions = reported(&mut us, &mut peer);
        let most = regions.iter().map(|(region, _)| region.end.0 - region.start.0).max();
        assert_eq!(most, Some(longest), "{ours} and {theirs}: {regions:?}");
        // The first region begins behind the 32 runs, the last ends with the newest symbol.
        let whole = regions.iter().filter(|(region, _)| region.end.0 - region.start.0 == longest);
        assert!(whole.clone().count() > 1 && whole.clone().all(|(_, deficit)| *deficit == longest / 2));
    }
}

/// The regions of lane 0 in the FEEDBACK that is sent next.
fn reported(us: &mut Connection, peer: &mut Peer) -> Vec<(core::ops::Range<SourceId>, u64)> {
    peer.wait(Duration::from_millis(50));
    us.handle_timeout(peer.now);
    let (mut buffer, mut regions) = ([0; DATAGRAM], Vec::new());
    while let Some(transmit) = us.poll_transmit(peer.now, 1, &mut buffer) {
        let opened = peer.opening.open(0, &mut buffer[..transmit.len]).expect("authentic");
        for frame in Frames::new(&buffer[opened.payload]) {
            if let Ok(Frame::Feedback(feedback)) = frame {
                regions.extend(feedback.lanes().flat_map(|report| report.regions));
            }
        }
    }
    regions
}
