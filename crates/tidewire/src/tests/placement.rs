//! The loads of shards, and who gets the next connection.

use crate::placement::Loads;

#[test]
fn a_place_counts_until_its_shard_tells_it() {
    let loads = Loads::new(3, true);
    assert_eq!([0, 0, 0, 4].map(|first| loads.choose(first)), [0, 1, 2, 1]);
    // The second place of shard 1 was not used.
    loads.tell(1, Some(1), Some(1));
    loads.tell(1, Some(1), Some(1));
    loads.tell(0, Some(1), Some(0));
    assert_eq!([2, 2, 2].map(|first| loads.choose(first)), [2, 0, 1]);
}

#[test]
fn a_full_shard_gets_nothing_unless_all_are() {
    let loads = Loads::new(2, true);
    loads.tell(0, None, None);
    assert!(!loads.are_full());
    assert_eq!([0, 0, 0].map(|first| loads.choose(first)), [1; 3]);
    loads.tell(1, None, None);
    assert!(loads.are_full());
    loads.tell(0, Some(5), None);
    assert_eq!((loads.choose(1), loads.are_full()), (0, false));
}

#[test]
fn a_connection_stays_where_its_datagrams_come_unless_that_shard_is_full() {
    let loads = Loads::new(2, false);
    assert_eq!([1, 1, 0, 1].map(|first| loads.choose(first)), [1, 1, 0, 1]);
    loads.tell(1, None, None);
    assert_eq!(loads.choose(1), 0);
}
