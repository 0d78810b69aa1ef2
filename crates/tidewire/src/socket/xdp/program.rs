//! The XDP program of an interface: it hands the datagrams of one UDP port to our sockets, and leaves all
//! else to the kernel.
//!
//! [`Attached`] loads it and attaches it. The program is written here as instructions (RFC 9669), because it
//! has about forty of them, and a compiler for BPF would be a condition of every build. It compares the
//! addresses of the interface too, so that a router does not take what it should forward. Invariant: what it
//! does not understand (VLAN tags, options of IP, fragments) passes to the kernel, whose socket has the same
//! port. The kernel detaches the program when the process ends, however it ends.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::libc;

#[cfg(test)]
mod tests;

/// Most addresses that the program compares. Chosen: far below the 4,096 instructions of old kernels, with
/// nine for each address.
const MOST_ADDRESSES: usize = 256;

/// The program while it is attached; see the module.
#[derive(Debug)]
pub(super) struct Attached {
    sockets: OwnedFd,
    /// Detaches the program when it is closed.
    _link: OwnedFd,
}

impl Attached {
    /// Attaches the program to the interface `index` with `queues` queues.
    ///
    /// # Errors
    /// The kernel refuses the program, because of missing rights, or because the interface has one already.
    pub fn new(index: u32, queues: u32, port: u16, addresses: &[IpAddr]) -> io::Result<Self> {
        if addresses.len() > MOST_ADDRESSES {
            let text =
                format!("the interface has {} addresses, more than {MOST_ADDRESSES}: bind to one", addresses.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let sockets = create_map(queues)?;
        let program = load(&program(sockets.as_raw_fd(), port, addresses))?;
        // The driver's own hook is faster. Drivers without one have the generic hook.
        let link = attach(&program, index, XDP_FLAGS_DRV_MODE).or_else(|error| match error.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::EINVAL) => attach(&program, index, XDP_FLAGS_SKB_MODE),
            _ => Err(error),
        })?;
        Ok(Self { sockets, _link: link })
    }

    /// From now on, what arrives at the queue goes to the socket.
    ///
    /// # Errors
    /// The socket is not bound to this queue.
    pub fn insert(&self, queue: u32, socket: RawFd) -> io::Result<()> {
        let (key, value) = (queue.to_ne_bytes(), socket.to_ne_bytes());
        let attributes = MapElement {
            map: self.sockets.as_raw_fd(),
            _padding: 0,
            key: key.as_ptr() as u64,
            value: value.as_ptr() as u64,
            flags: 0,
        };
        bpf(BPF_MAP_UPDATE_ELEM, &attributes).map(drop)
    }
}

/// One instruction, as RFC 9669 section 3 lays it out.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u8,
    /// The destination register in the lower half, the source register in the upper one.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Instructions with jumps to places that come later.
#[derive(Default)]
struct Assembler {
    code: Vec<Instruction>,
    /// Jumps to the place that passes the packet to the kernel, and to the one that takes it.
    to_pass: Vec<usize>,
    to_take: Vec<usize>,
}

impl Assembler {
    fn push(&mut self, code: u8, [destination, source]: [u8; 2], offset: i16, immediate: i32) -> usize {
        self.code.push(Instruction { code, registers: destination | source << 4, offset, immediate });
        self.code.len() - 1
    }

    /// Loads a value of the packet at `offset` into the register [`VALUE`].
    fn load(&mut self, code: u8, offset: i16) {
        self.push(code, [VALUE, DATA], offset, 0);
    }

    /// Passes the packet to the kernel unless the loaded value is `wanted`.
    fn require(&mut self, wanted: u32) {
        let jump = self.push(JUMP32_NOT_EQUAL, [VALUE, 0], 0, wanted as i32);
        self.to_pass.push(jump);
    }

    /// Passes the packet to the kernel if it is shorter than `length`.
    fn require_length(&mut self, length: i32) {
        self.push(MOVE, [VALUE, DATA], 0, 0);
        self.push(ADD_IMMEDIATE, [VALUE, 0], 0, length);
        let jump = self.push(JUMP_GREATER, [VALUE, END], 0, 0);
        self.to_pass.push(jump);
    }

    /// Makes the jumps lead here.
    fn land(&mut self, jumps: &[usize]) {
        let here = self.code.len();
        for &jump in jumps {
            // The program has some thousands of instructions at most.
            self.code[jump].offset = (here - jump - 1) as i16;
        }
    }

    /// Takes the packet if one of these addresses is the destination at `offset`.
    fn take_if_ours(&mut self, offset: i16, addresses: impl Iterator<Item = Vec<[u8; 4]>>) {
        for words in addresses {
            let mut to_next = Vec::new();
            for (word, at) in words.into_iter().zip((offset..).step_by(4)) {
                self.load(LOAD_WORD, at);
                to_next.push(self.push(JUMP32_NOT_EQUAL, [VALUE, 0], 0, i32::from_ne_bytes(word)));
            }
            let jump = self.push(JUMP, [0, 0], 0, 0);
            self.to_take.push(jump);
            self.land(&to_next);
        }
        let jump = self.push(JUMP, [0, 0], 0, 0);
        self.to_pass.push(jump);
    }
}

/// The program: `sockets` is its map, `port` and `addresses` are ours.
fn program(sockets: RawFd, port: u16, addresses: &[IpAddr]) -> Vec<Instruction> {
    // Values of the packet are compared as they lie in memory.
    let network = |value: u16| u32::from(value.to_be());
    let mut code = Assembler::default();
    code.push(MOVE, [CONTEXT, ARGUMENT], 0, 0);
    code.push(LOAD_WORD, [DATA, CONTEXT], CONTEXT_DATA, 0);
    code.push(LOAD_WORD, [END, CONTEXT], CONTEXT_END, 0);
    code.require_length(ETHERNET + 20 + 8);
    code.load(LOAD_HALF, 12);
    let to_v6 = code.push(JUMP32_EQUAL, [VALUE, 0], 0, network(ETHERTYPE_IPV6) as i32);
    code.require(network(ETHERTYPE_IPV4));
    // No options, no fragment (neither the flag "more" nor an offset), UDP.
    code.load(LOAD_BYTE, 14);
    code.require(0x45);
    code.load(LOAD_HALF, 20);
    code.push(AND_IMMEDIATE, [VALUE, 0], 0, network(0x3FFF) as i32);
    code.require(0);
    code.load(LOAD_BYTE, 23);
    code.require(UDP);
    code.load(LOAD_HALF, 36);
    code.require(network(port));
    let v4 = addresses.iter().filter_map(|address| as_v4(*address)).map(|address| vec![address.octets()]);
    code.take_if_ours(30, v4);
    code.land(&[to_v6]);
    code.require_length(ETHERNET + 40 + 8);
    code.load(LOAD_BYTE, 20);
    code.require(UDP);
    code.load(LOAD_HALF, 56);
    code.require(network(port));
    code.take_if_ours(38, addresses.iter().filter_map(|address| as_v6(*address)).map(words));
    let jumps = std::mem::take(&mut code.to_take);
    code.land(&jumps);
    code.push(LOAD_WORD, [KEY, CONTEXT], CONTEXT_QUEUE, 0);
    code.push(LOAD_WIDE, [ARGUMENT, PSEUDO_MAP], 0, sockets);
    code.push(0, [0, 0], 0, 0);
    // What a queue without a socket gets passes to the kernel.
    code.push(MOVE_IMMEDIATE, [FLAGS, 0], 0, XDP_PASS);
    code.push(CALL, [0, 0], 0, REDIRECT_MAP);
    code.push(EXIT, [0, 0], 0, 0);
    let jumps = std::mem::take(&mut code.to_pass);
    code.land(&jumps);
    code.push(MOVE_IMMEDIATE, [RESULT, 0], 0, XDP_PASS);
    code.push(EXIT, [0, 0], 0, 0);
    code.code
}

fn as_v4(address: IpAddr) -> Option<Ipv4Addr> {
    if let IpAddr::V4(address) = address.to_canonical() { Some(address) } else { None }
}

fn as_v6(address: IpAddr) -> Option<Ipv6Addr> {
    if let IpAddr::V6(address) = address.to_canonical() { Some(address) } else { None }
}

fn words(address: Ipv6Addr) -> Vec<[u8; 4]> {
    address.octets().chunks_exact(4).map(|word| [word[0], word[1], word[2], word[3]]).collect()
}

/// `BPF_MAP_CREATE` of `union bpf_attr` (linux/bpf.h).
#[repr(C)]
struct NewMap {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
}

/// `BPF_MAP_UPDATE_ELEM`.
#[repr(C)]
struct MapElement {
    map: i32,
    _padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// `BPF_PROG_LOAD`, up to the fields that stay zero.
#[repr(C)]
struct NewProgram {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

/// `BPF_LINK_CREATE`.
#[repr(C)]
struct NewLink {
    program: i32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

fn create_map(entries: u32) -> io::Result<OwnedFd> {
    let new = NewMap { kind: BPF_MAP_TYPE_XSKMAP, key_size: 4, value_size: 4, entries, flags: 0 };
    bpf_descriptor(BPF_MAP_CREATE, &new)
}

fn load(code: &[Instruction]) -> io::Result<OwnedFd> {
    let mut name = [0; 16];
    name[..8].copy_from_slice(b"tidewire");
    let new = NewProgram {
        kind: BPF_PROG_TYPE_XDP,
        instructions: code.len() as u32,
        code: code.as_ptr() as u64,
        // No function that the program calls asks for another one.
        license: c"MIT".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name,
        interface: 0,
        attach_type: BPF_XDP,
    };
    bpf_descriptor(BPF_PROG_LOAD, &new)
}

fn attach(program: &OwnedFd, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    let new = NewLink { program: program.as_raw_fd(), interface, attach_type: BPF_XDP, flags };
    bpf_descriptor(BPF_LINK_CREATE, &new)
}

fn bpf_descriptor<T>(command: i32, attributes: &T) -> io::Result<OwnedFd> {
    let descriptor = bpf(command, attributes)?;
    // SAFETY: these commands return a new descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn bpf<T>(command: i32, attributes: &T) -> io::Result<RawFd> {
    // SAFETY: `attributes` is laid out as the command wants it, and what it points to lives during the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as RawFd) }
}

// Codes of RFC 9669 sections 4 and 5.
const MOVE: u8 = 0xBF;
const MOVE_IMMEDIATE: u8 = 0xB7;
const ADD_IMMEDIATE: u8 = 0x07;
const AND_IMMEDIATE: u8 = 0x57;
const LOAD_WORD: u8 = 0x61;
const LOAD_HALF: u8 = 0x69;
const LOAD_BYTE: u8 = 0x71;
const LOAD_WIDE: u8 = 0x18;
const JUMP: u8 = 0x05;
const JUMP_GREATER: u8 = 0x2D;
const JUMP32_EQUAL: u8 = 0x16;
const JUMP32_NOT_EQUAL: u8 = 0x56;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// Source "register" of [`LOAD_WIDE`]: the immediate is the descriptor of a map.
const PSEUDO_MAP: u8 = 1;

// Registers: those of arguments and the result are the calling convention of RFC 9669 section 2, others ours.
const RESULT: u8 = 0;
const ARGUMENT: u8 = 1;
const KEY: u8 = 2;
const FLAGS: u8 = 3;
const VALUE: u8 = 5;
const CONTEXT: u8 = 6;
const DATA: u8 = 7;
const END: u8 = 8;

// Offsets of `struct xdp_md`, and numbers of linux/bpf.h and linux/if_link.h.
const CONTEXT_DATA: i16 = 0;
const CONTEXT_END: i16 = 4;
const CONTEXT_QUEUE: i16 = 16;
const XDP_PASS: i32 = 2;
const REDIRECT_MAP: i32 = 51;
const BPF_MAP_CREATE: i32 = 0;
const BPF_MAP_UPDATE_ELEM: i32 = 2;
const BPF_PROG_LOAD: i32 = 5;
const BPF_LINK_CREATE: i32 = 28;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

// Lengths and numbers of Ethernet and IP.
const ETHERNET: i32 = 14;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86DD;
const UDP: u32 = 17;
