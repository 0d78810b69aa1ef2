//! A sender that sends any records, for `transfer` and `links`.

use tidewire_transfer::{
    Destination, Key, Outcome, Reason, Record, RecordReader, RecordWriter, TransferError, receive,
};
use tokio::io::{duplex, split};

/// The RESULTs of a receiver: ids, and why they failed.
pub type Results = Vec<(u32, Option<Reason>)>;

/// Sends `records`. Returns how the receiver ended, and its RESULTs.
pub async fn play(records: &[Record<'_>], destination: &Destination) -> (Result<Outcome, TransferError>, Results) {
    let (near, far) = duplex(1 << 20);
    let hostile = async {
        let (read, write) = split(near);
        let mut writer = RecordWriter::open(write).await.unwrap();
        writer.write(&Record::Total { files: 0, bytes: 0, job: Key::default() }).await.unwrap();
        for record in records {
            if writer.write(record).await.is_err() {
                break;
            }
        }
        let _ = writer.close().await;
        let mut reader = RecordReader::open(read).await.unwrap();
        let mut results = Vec::new();
        while let Ok(record) = reader.next().await {
            if let Record::Result { id, failure, .. } = record {
                results.push((id, failure));
            }
        }
        results
    };
    tokio::join!(receive(far, destination, None, &|_| {}), hostile)
}
