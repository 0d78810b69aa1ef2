//! A video across the namespace lab's link, over our library and over kernel TCP. The test needs root and
//! TUN. It says so and passes where these are missing.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tidewire::Config;
use tidewire_lab::video::{Showing, Shown, Transport};
use tidewire_sim::duplex::DuplexConfig;
use tidewire_sim::scenario::Scenario;
use tidewire_sim::video::{FrameTrace, PlaybackRules, Synthetic, Video};

/// Whether this machine and user can have a lab. If not, prints why.
fn needs_lab() {
    let tun = || fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").is_ok();
    let ip = || Command::new("ip").arg("netns").output().is_ok_and(|output| output.status.success());
    let root = || Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    tidewire_testing::needs("root, /dev/net/tun, iproute2", root() && tun() && ip());
}

/// Duration of the video's content.
const CONTENT: Duration = Duration::from_secs(4);

/// A video of 20 Mbit/s.
fn frames() -> FrameTrace {
    Synthetic::new(20_000_000, 7).trace(CONTENT).unwrap()
}

fn link() -> DuplexConfig {
    let text = "[link]\nrate = \"40mbit\"\nrtt = \"10ms\"\nloss = \"2%\"\n";
    Scenario::parse(text, Path::new("link.toml")).unwrap().link
}

fn show(name: &str, transport: Transport, video: Video, time: Duration) -> Shown {
    let shown = Showing { link: link(), transport, video, time }.run().unwrap();
    let (viewing, lost) = (&shown.viewing, shown.counts.forward().lost);
    println!(
        "{name}: {} bytes, {:?}, {lost} lost; start {:?}, {} stalls of {:?}, {:?} left",
        shown.bytes,
        shown.arrived,
        viewing.first_start,
        viewing.stalls,
        viewing.stalled,
        viewing.buffered()
    );
    assert!(lost > 0 && viewing.samples.len() > 10);
    assert_eq!(viewing.played + viewing.buffered(), viewing.received);
    shown
}

/// One test, because hosts are named after their process. With few seeds it leaves out two of the showings.
#[test]
#[ignore = "needs root: network namespaces"]
fn a_video_arrives_over_every_transport() {
    needs_lab();
    let ours = || Transport::Ours(Box::new([Config::default(), Config::default()]));
    let (whole, ten) = (frames().bytes(), Duration::from_secs(10));

    let shown = show("ours", ours(), Video::best_effort(frames()), ten);
    assert_eq!((shown.bytes, shown.viewing.played, shown.viewing.stalls), (whole, CONTENT, 0));
    let (arrived, ended) = (shown.arrived.unwrap(), shown.viewing.ended.unwrap());
    assert_eq!(ended, shown.viewing.first_start.unwrap() + CONTENT);
    assert!(arrived < ended, "{arrived:?}");

    // At 2 % loss and 10 ms, a CUBIC flow has 8 Mbit/s or so: the time is over before everything has arrived.
    let half = Duration::from_millis(500);
    let rules = PlaybackRules { startup: half, resume: half, ..PlaybackRules::default() };
    let hasty = Video { rules, ..Video::best_effort(frames()) };
    let shown = show("cubic", Transport::Kernel("cubic".to_owned()), hasty.clone(), CONTENT);
    assert!(shown.bytes > 0 && shown.bytes < whole && shown.arrived.is_none());
    assert!(shown.viewing.stalls > 0 && shown.viewing.stalled > Duration::ZERO);

    // A time that is shorter than the video ends our transport too.
    let shown = show("ours, live, cut", ours(), Video::live(frames()), Duration::from_secs(1));
    assert!(shown.bytes < whole && shown.arrived.is_none());

    if !tidewire_testing::few_seeds() {
        let shown = show("ours, live", ours(), Video::live(frames()), ten);
        assert_eq!((shown.bytes, shown.viewing.stalls), (whole, 0));
        assert!(shown.arrived.unwrap() >= frames().frames().last().unwrap().at);
        let shown = show("bbr", Transport::Kernel("bbr".to_owned()), hasty, ten);
        assert!(shown.bytes > 0 && shown.viewing.first_start.is_some());
    }

    let transport = Transport::Kernel("no-such-control".to_owned());
    let wrong = Showing { link: link(), transport, video: Video::live(frames()), time: ten };
    let wrong = wrong.run().unwrap_err().to_string();
    assert!(wrong.starts_with("the kernel has no TCP congestion control `no-such-control`"), "{wrong}");
}
