//! A coding job that panics ends its connection, and the endpoint continues.

use crate::{CloseCode, CloseReason, Config, Endpoint, new_secret};

#[tokio::test]
async fn a_job_without_a_result_ends_its_connection_alone() {
    let secret = new_secret().expect("the system has random bytes");
    let address = "127.0.0.1:0".parse().expect("an address");
    let far = Endpoint::bind(address, secret.clone(), Config::default()).expect("a socket");
    let near = Endpoint::bind(address, secret, Config::default()).expect("a socket");
    let connect = || async {
        let (theirs, ours) = tokio::join!(far.accept(), near.connect(far.local_addr()));
        (theirs.expect("the endpoint is open"), ours.expect("it answers"))
    };
    let ((theirs, ours), (_other, kept)) = (connect().await, connect().await);
    theirs.fail_job();
    assert_eq!(theirs.closed().await, CloseReason::Local);
    let reason = ours.closed().await;
    assert!(matches!(&reason, CloseReason::Peer { code: CloseCode::Internal, .. }), "{reason:?}");
    assert!(kept.open().await.is_ok());
}
