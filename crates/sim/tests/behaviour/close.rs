//! Both ends learn that a connection is over, and why.

use core::time::Duration;

use tidewire_proto::connection::{CloseCode, CloseReason};
use tidewire_sim::load::Load;
use tidewire_sim::pair::End;
use tidewire_sim::settings::Direction;

use super::bulk;

#[test]
fn the_reason_reaches_the_other_end_through_loss() {
    for end in [End::Near, End::Far] {
        let mut run = bulk(50_000_000, &[(Direction::Both, "loss", "20%")]).start();
        let at = run.began() + Duration::from_secs(2);
        run.until(at);
        let handle = run.load.handle(end).unwrap();
        let (now, local) = (run.pair.now(), run.pair.local(end));
        let connection = run.pair.endpoint(end).connection_mut(handle).unwrap();
        connection.close(local, CloseCode::Application(300), "enough");
        run.pair.wake(end);
        run.pair.run(&mut run.load, now + Duration::from_secs(10), Load::is_over);
        let told = CloseReason::Peer { code: CloseCode::Application(300), reason: "enough".to_owned() };
        assert_eq!(run.load.closed[end as usize], Some(CloseReason::Local));
        assert_eq!(run.load.closed[end.other() as usize], Some(told));
        let later = run.pair.now() + Duration::from_secs(10);
        run.pair.run(&mut run.load, later, |_| false);
        let left = [End::Near, End::Far].map(|end| run.pair.endpoint(end).connections().count());
        assert_eq!(left, [0, 0], "both are forgotten");
    }
}
