//! ISA-L, Intel's C and assembly library, if the system has it (Debian: libisal2). The program looks for it
//! at run time. It reads symbols in place, and the tables for encoding are made before. Decoding is timed
//! once with the k x k inversion and the tables that follow from it, and once with both known.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::OnceLock;

use libloading::Library;

use super::{Block, BlockCodec};
use crate::symbols::Symbols;

/// The library's functions, as `erasure_code.h` declares them.
struct Isal {
    gen_cauchy: unsafe extern "C" fn(*mut u8, c_int, c_int),
    invert: unsafe extern "C" fn(*mut u8, *mut u8, c_int) -> c_int,
    init_tables: unsafe extern "C" fn(c_int, c_int, *const u8, *mut u8),
    encode_data: unsafe extern "C" fn(c_int, c_int, c_int, *const u8, *const *const u8, *const *mut u8),
}

/// Bytes of table that one coefficient takes.
const TABLE: usize = 32;

impl Isal {
    /// Loads the library, if it is installed.
    fn load() -> Option<&'static Self> {
        static ISAL: OnceLock<Option<(Isal, Library)>> = OnceLock::new();
        let load = || {
            // SAFETY: ISA-L runs no code when it is loaded. The types are those of its header, and the
            // library is stored beside the pointers into it.
            unsafe {
                let library = ["libisal.so.2", "libisal.so"].iter().find_map(|name| Library::new(*name).ok())?;
                let isal = Isal {
                    gen_cauchy: *library.get(b"gf_gen_cauchy1_matrix\0").ok()?,
                    invert: *library.get(b"gf_invert_matrix\0").ok()?,
                    init_tables: *library.get(b"ec_init_tables\0").ok()?,
                    encode_data: *library.get(b"ec_encode_data\0").ok()?,
                };
                Some((isal, library))
            }
        };
        ISAL.get_or_init(load).as_ref().map(|(isal, _)| isal)
    }

    /// The tables of a matrix of `k` columns.
    fn tables(&self, matrix: &[u8], k: usize, tables: &mut [u8]) {
        assert_eq!(tables.len(), TABLE * matrix.len());
        // SAFETY: the function reads a matrix of rows x k bytes and writes 32 bytes for each of them.
        unsafe { (self.init_tables)(k as c_int, (matrix.len() / k) as c_int, matrix.as_ptr(), tables.as_mut_ptr()) }
    }

    /// Computes one output for each row of the tables' matrix.
    fn combine(&self, tables: &[u8], inputs: &[*const u8], outputs: &mut Symbols) {
        let len = outputs.len();
        assert_eq!(tables.len(), TABLE * inputs.len() * outputs.count());
        let out: Vec<*mut u8> = outputs.iter_mut().map(<[u8]>::as_mut_ptr).collect();
        let (k, rows) = (inputs.len() as c_int, out.len() as c_int);
        // SAFETY: there are tables for rows x k coefficients, k inputs and rows outputs of `len` bytes. The
        // inputs are symbols of the same block or of its repairs, which have the same length.
        unsafe { (self.encode_data)(len as c_int, k, rows, tables.as_ptr(), inputs.as_ptr(), out.as_ptr()) }
    }
}

struct Codec<'a> {
    isal: &'static Isal,
    block: &'a Block,
    sources: Vec<*const u8>,
    /// The identity, then the rows of the repair symbols.
    matrix: Vec<u8>,
    encode_tables: Vec<u8>,
    decode_tables: Vec<u8>,
    is_inverse_known: bool,
    repairs: Symbols,
    decoded: Symbols,
}

/// Decoding with the inversion.
pub fn open(block: &Block) -> Option<Box<dyn BlockCodec + '_>> {
    Some(Box::new(codec(block)?))
}

/// Decoding with the inverse known.
pub fn open_known(block: &Block) -> Option<Box<dyn BlockCodec + '_>> {
    let mut codec = codec(block)?;
    codec.prepare_decode();
    codec.is_inverse_known = true;
    Some(Box::new(codec))
}

fn codec(block: &Block) -> Option<Codec<'_>> {
    let (k, r, m, len) = (block.k(), block.repairs, block.lost.len(), block.len());
    let isal = Isal::load().filter(|_| k + r <= 256)?;
    let mut matrix = vec![0; (k + r) * k];
    // SAFETY: the function writes a matrix of (k + r) x k bytes.
    unsafe { (isal.gen_cauchy)(matrix.as_mut_ptr(), (k + r) as c_int, k as c_int) };
    let mut encode_tables = vec![0; TABLE * r * k];
    isal.tables(&matrix[k * k..], k, &mut encode_tables);
    Some(Codec {
        isal,
        block,
        sources: block.sources.iter().map(<[u8]>::as_ptr).collect(),
        matrix,
        encode_tables,
        decode_tables: vec![0; TABLE * m * k],
        is_inverse_known: false,
        repairs: Symbols::zeros(r, len),
        decoded: Symbols::zeros(m, len),
    })
}

impl Codec<'_> {
    /// Rows of the encoding matrix whose symbols arrived: the sources' in order, then the first repairs'.
    fn survivors(&self) -> impl Iterator<Item = usize> {
        let k = self.block.k();
        (0..k).filter(|&i| !self.block.is_lost(i)).chain(k..k + self.block.lost.len())
    }

    /// Inverts the rows that arrived and makes tables for the lost symbols.
    fn prepare_decode(&mut self) {
        let k = self.block.k();
        let mut rows: Vec<u8> = self.survivors().flat_map(|i| &self.matrix[i * k..][..k]).copied().collect();
        let mut inverse = vec![0; k * k];
        // SAFETY: both are k x k bytes.
        let singular = unsafe { (self.isal.invert)(rows.as_mut_ptr(), inverse.as_mut_ptr(), k as c_int) };
        assert_eq!(singular, 0, "a Cauchy matrix has only regular minors");
        let wanted: Vec<u8> = self.block.lost.iter().flat_map(|&i| &inverse[i * k..][..k]).copied().collect();
        self.isal.tables(&wanted, k, &mut self.decode_tables);
    }
}

impl BlockCodec for Codec<'_> {
    fn encode(&mut self) {
        self.isal.combine(&self.encode_tables, &self.sources, &mut self.repairs);
    }

    fn decode(&mut self) {
        if !self.is_inverse_known {
            self.prepare_decode();
        }
        let k = self.block.k();
        let symbol = |i| if i < k { self.sources[i] } else { self.repairs.get(i - k).as_ptr() };
        let inputs: Vec<*const u8> = self.survivors().map(symbol).collect();
        self.isal.combine(&self.decode_tables, &inputs, &mut self.decoded);
    }

    fn decoded(&self) -> Vec<&[u8]> {
        self.decoded.iter().collect()
    }
}
