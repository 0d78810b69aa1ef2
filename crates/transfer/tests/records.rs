//! Every record as bytes: the seed corpus of the fuzz target `records`, in this version of the transfer.
//!
//! `TIDEWIRE_WRITE=1 cargo test -p tidewire-transfer --test records` writes the corpus anew. Invariant: every
//! seed that is meant to parse does, so a new version of the format cannot leave the corpus behind.

use std::fs;
use std::future::Future;
use std::path::Path;

use tidewire_transfer::{
    Attributes, Claim, Encoding, Entry, Have, Key, Kind, Link, Look, MAX_RECORD, Prefix, Reason, Record, RecordReader,
    RecordWriter,
};

const KEY: Key = Key([7; Key::LEN]);
const HASH: [u8; 32] = [9; 32];

/// What a sender says: files with an offset, a hole and a changed beginning, one that fails, one that stands,
/// one without a name in UTF-8, a folder, and a link.
fn sender() -> Vec<Record<'static>> {
    let attributes = Attributes { mode: 0o644, modified: (1_700_000_000, 5) };
    let look = |id, kind, encoding, path: &[u8]| {
        Record::Look(Look { id, kind, encoding, size: 4_194_305, source: KEY, path: path.to_vec() })
    };
    let entry = |id, offset| Record::Entry(Entry { id, attributes, size: 4_194_305, offset, source: KEY });
    vec![
        Record::Total { files: 4, bytes: 4_194_305, job: KEY },
        look(0, Kind::Directory, Encoding::Utf8, b"a"),
        look(1, Kind::File, Encoding::Utf8, b"a/b.txt"),
        look(2, Kind::File, Encoding::Raw, b"a/\xff"),
        look(3, Kind::File, Encoding::Utf8, b"c"),
        Record::Skip(2),
        Record::Claim(Claim { id: 3, attributes, hash: HASH }),
        entry(1, 4_194_304),
        Record::Chunk(b"."),
        Record::Back(0),
        Record::Zeros(262_144),
        Record::Mark(HASH),
        Record::End(HASH),
        entry(0, 0),
        Record::Abort(Reason::Vanished),
        Record::Link(Link { id: 4, encoding: Encoding::Utf8, path: b"d".to_vec(), target: b"a/b.txt".to_vec() }),
        Record::Done { announced: 3, unsent: 1 },
    ]
}

/// What a receiver answers.
fn receiver() -> Vec<Record<'static>> {
    let beginning = Prefix::new(5, vec![[1; 32], [2; 32]]).unwrap();
    vec![
        Record::Have { id: 1, have: Have::Beginning(beginning) },
        Record::Have { id: 2, have: Have::Nothing },
        Record::Have { id: 3, have: Have::Standing },
        Record::Have { id: 4, have: Have::OtherVersion },
        Record::Differs(3),
        Record::Result { id: 1, failure: None, detail: "" },
        Record::Result { id: 2, failure: Some(Reason::NoSpace), detail: "No space left on device" },
        Record::Tally { kept: 2, failed: 1, bytes: 4_194_305 },
    ]
}

/// The seeds by name, each behind the magic, and how many records a reader finds in it.
fn seeds() -> Vec<(&'static str, Vec<u8>, usize)> {
    let seed = |name, records: Vec<Record<'_>>| {
        let count = records.len();
        (name, now(written(&records)), count)
    };
    let too_long = [&[0x03][..], &(MAX_RECORD as u32 + 1).to_be_bytes()].concat();
    let grease = [&b"\x85\0\0\0\x06grease"[..], &now(written(&[Record::Abort(Reason::Changed)]))].concat();
    let mut seeds = vec![seed("sender", sender()), seed("receiver", receiver())];
    seeds.extend([("too_long", too_long, 0), ("grease", grease, 1)]);
    seeds
}

/// The bytes of `records`, without the magic and the random record behind it.
async fn written(records: &[Record<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = RecordWriter::open(&mut bytes).await.unwrap();
    writer.write_all(records.iter().cloned()).await.unwrap();
    let noise = u32::from_be_bytes(bytes[9..13].try_into().unwrap());
    bytes.split_off(13 + noise as usize)
}

/// The number of records that a reader takes from a seed.
async fn read(seed: &[u8]) -> usize {
    let mut opening = Vec::new();
    RecordWriter::open(&mut opening).await.unwrap();
    let bytes = [&opening[..8], seed].concat();
    let mut reader = RecordReader::open(&bytes[..]).await.unwrap();
    let mut count = 0;
    while reader.next().await.is_ok() {
        count += 1;
    }
    count
}

fn now<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn the_corpus_has_every_record_of_this_version() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/records");
    for (name, seed, records) in seeds() {
        assert_eq!(now(read(&seed)), records, "{name}");
        if std::env::var_os("TIDEWIRE_WRITE").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(name), &seed).unwrap();
        }
        let kept = fs::read(folder.join(name)).unwrap_or_default();
        assert!(kept == seed, "{name} is old: the first lines of this file say how to write the corpus");
    }
}
