//! Messages with a deadline, as live video sends them: each arrives whole, or not at all once it is too late.
//!
//! Run it with `cargo run --release -p tidewire --example messages`. Both ends are in this process, over
//! loopback.

use std::error::Error;
use std::time::Duration;

use tidewire::{CloseCode, Config, Connection, Endpoint, LaneConfig, new_secret};

/// Frames of a second of video at 30 Hz and 6 Mbit/s.
const FRAMES: u8 = 30;
const FRAME_BYTES: usize = 25_000;
const INTERVAL: Duration = Duration::from_millis(33);
/// A frame that arrives later than this is useless.
const LIFETIME: Duration = Duration::from_millis(200);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let secret = new_secret()?;
    let far = Endpoint::bind("127.0.0.1:0".parse()?, secret.clone(), Config::default())?;
    let near = Endpoint::bind("127.0.0.1:0".parse()?, secret, Config::default())?;
    let (viewer, camera) = tokio::join!(far.accept(), near.connect(far.local_addr()));
    let (viewer, camera) = (viewer?, camera?);

    let counting = tokio::spawn(count(viewer));
    let lane = camera.open_lane(&LaneConfig::default())?;
    for number in 0..FRAMES {
        // Returns when the lane has taken the frame; the lifetime runs from this call on.
        camera.send_message(lane, &vec![number; FRAME_BYTES], LIFETIME).await?;
        tokio::time::sleep(INTERVAL).await;
    }
    // Closing does not wait for data under way, so the lifetime of the last frame has to pass first.
    tokio::time::sleep(LIFETIME).await;
    camera.close(CloseCode::Done, "end of the film");
    println!("{} of {FRAMES} frames arrived in time", counting.await?);
    Ok(())
}

/// Counts frames until the connection ends.
async fn count(connection: Connection) -> u32 {
    let mut frames = 0;
    while let Ok(message) = connection.receive_message().await {
        // A message is never truncated.
        assert_eq!(message.data.len(), FRAME_BYTES);
        frames += 1;
    }
    frames
}
