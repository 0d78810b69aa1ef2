//! The table of sockets: a handle is a place and a generation, so that a closed one is never taken for
//! another.
//!
//! Every function of the edge looks its handle up here. Invariants: handles are above zero, and a place whose
//! generations are used up is never used again.

use std::sync::{Arc, PoisonError, RwLock};

use crate::code::{Failure, Outcome, TW_EBADF, TW_EMFILE};
use crate::socket::Socket;

/// Most sockets of a process. Chosen: the usual upper limit of descriptors, which a program with so many
/// sockets needs as well.
const MOST: usize = 65_536;
/// The last generation of a place: handles stay below 2^62.
const LAST_GENERATION: u32 = (1 << 30) - 1;
/// Bits of a handle below the generation.
const PLACE_BITS: u32 = 32;

/// The table of the process.
pub(crate) static TABLE: Table = Table(RwLock::new(Places { places: Vec::new(), free: Vec::new() }));

/// See the module.
pub(crate) struct Table(RwLock<Places>);

struct Places {
    places: Vec<Place>,
    /// Places without a socket.
    free: Vec<u32>,
}

struct Place {
    generation: u32,
    socket: Option<Arc<Socket>>,
}

impl Table {
    /// Puts a socket in, and returns its handle.
    pub fn insert(&self, socket: Arc<Socket>) -> Outcome<i64> {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let index = match table.free.pop() {
            Some(index) => index,
            None if table.places.len() < MOST => {
                table.places.push(Place { generation: 0, socket: None });
                (table.places.len() - 1) as u32
            }
            None => {
                return Err(Failure::new(
                    TW_EMFILE,
                    format_args!("this process has {MOST} sockets already: close some"),
                ));
            }
        };
        let place = &mut table.places[index as usize];
        place.generation += 1;
        place.socket = Some(socket);
        Ok(i64::from(place.generation) << PLACE_BITS | i64::from(index))
    }

    /// The socket of a handle.
    pub fn find(&self, handle: i64) -> Outcome<Arc<Socket>> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let place = table.place(handle).ok_or_else(|| unknown(handle))?;
        table.places[place].socket.clone().ok_or_else(|| unknown(handle))
    }

    /// Takes a socket out.
    pub fn remove(&self, handle: i64) -> Outcome<Arc<Socket>> {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let place = table.place(handle).ok_or_else(|| unknown(handle))?;
        let socket = table.places[place].socket.take().ok_or_else(|| unknown(handle))?;
        if table.places[place].generation < LAST_GENERATION {
            table.free.push(place as u32);
        }
        Ok(socket)
    }

    /// Handles of all sockets.
    pub fn handles(&self) -> Vec<i64> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let used = table.places.iter().zip(0i64..).filter(|(place, _)| place.socket.is_some());
        used.map(|(place, index)| i64::from(place.generation) << PLACE_BITS | index).collect()
    }
}

impl Places {
    /// The index of the place that the handle names, if its generation is the present one.
    fn place(&self, handle: i64) -> Option<usize> {
        let generation = u32::try_from(handle >> PLACE_BITS).ok()?;
        let index = (handle & i64::from(u32::MAX)) as usize;
        (self.places.get(index)?.generation == generation).then_some(index)
    }
}

fn unknown(handle: i64) -> Failure {
    Failure::new(
        TW_EBADF,
        format_args!("{handle} is not an open handle: it was closed, or is not one of tw_socket, tw_accept or tw_open"),
    )
}
