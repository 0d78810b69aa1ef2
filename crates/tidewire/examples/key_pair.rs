//! Authentication with key pairs: the server lets in the keys that it lists, and the client names the
//! server's key.
//!
//! Run it with `cargo run --release -p tidewire --example key_pair`. Both ends are in this process, over
//! loopback.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;

use tidewire::{CloseCode, Config, Credentials, Endpoint, KeyCredentials, new_private_key};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // A program keeps its private key in a file that only its user can read: `tidewire keygen --pair` makes
    // one.
    let (server_key, client_key) = (new_private_key()?, new_private_key()?);
    let server_name = server_key.public();

    let mut credentials = KeyCredentials::new(server_key);
    credentials.authorized = Arc::new(BTreeSet::from([client_key.public()]));
    let server = Endpoint::bind("127.0.0.1:0".parse()?, Credentials::Key(credentials), Config::default())?;
    let client = KeyCredentials::new(client_key);
    let client = Endpoint::bind("127.0.0.1:0".parse()?, Credentials::Key(client), Config::default())?;

    let (theirs, ours) = tokio::join!(server.accept(), client.connect_to(server.local_addr(), &server_name));
    let (theirs, ours) = (theirs?, ours?);
    println!("the server knows its client: {}", theirs.peer_key().ok_or("a secret was used")?);
    ours.close(CloseCode::Done, "");

    // The server does not answer a key that is not listed, so the attempt times out.
    server.authorize(BTreeSet::new());
    let config = Config::builder().handshake_timeout(std::time::Duration::from_secs(1)).build()?;
    let stranger = KeyCredentials::new(new_private_key()?);
    let stranger = Endpoint::bind("127.0.0.1:0".parse()?, Credentials::Key(stranger), config)?;
    let refused = stranger.connect_to(server.local_addr(), &server_name).await;
    println!("a stranger: {}", refused.err().ok_or("a stranger was let in")?);
    Ok(())
}
