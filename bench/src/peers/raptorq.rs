//! `raptorq`: RFC 6330. The encoding plan is made before. The peer copies the block into its encoder, and its
//! decoder takes packets that own their bytes. Both copies are part of its time, because its users pay for
//! them too.

use raptorq::{
    EncodingPacket, ObjectTransmissionInformation, PayloadId, SourceBlockDecoder, SourceBlockEncoder,
    SourceBlockEncodingPlan,
};

use super::{Block, BlockCodec};

struct RaptorQ<'a> {
    block: &'a Block,
    data: Vec<u8>,
    config: ObjectTransmissionInformation,
    plan: SourceBlockEncodingPlan,
    sources: Vec<EncodingPacket>,
    repairs: Vec<EncodingPacket>,
    /// Repair packets that the decoder gets: one loss pattern in a hundred needs one more than are lost.
    needed: usize,
    decoded: Vec<u8>,
}

pub fn open(block: &Block) -> Option<Box<dyn BlockCodec + '_>> {
    let (k, len) = (block.k(), block.len());
    let data = block.slices().concat();
    let packet = |i: usize| EncodingPacket::new(PayloadId::new(0, i as u32), block.sources.get(i).to_vec());
    let mut codec = RaptorQ {
        block,
        config: ObjectTransmissionInformation::new(data.len() as u64, u16::try_from(len).ok()?, 1, 1, ALIGNMENT),
        plan: SourceBlockEncodingPlan::generate(u16::try_from(k).ok()?),
        data,
        sources: (0..k).filter(|&i| !block.is_lost(i)).map(packet).collect(),
        repairs: Vec::new(),
        needed: block.lost.len(),
        decoded: Vec::new(),
    };
    codec.encode();
    while codec.try_decode().is_none() {
        codec.needed += 1;
    }
    Some(Box::new(codec))
}

impl RaptorQ<'_> {
    fn try_decode(&self) -> Option<Vec<u8>> {
        let mut decoder = SourceBlockDecoder::new(0, &self.config, self.data.len() as u64);
        decoder.decode(self.sources.iter().chain(&self.repairs[..self.needed]).cloned())
    }
}

impl BlockCodec for RaptorQ<'_> {
    fn encode(&mut self) {
        let encoder = SourceBlockEncoder::with_encoding_plan(0, &self.config, &self.data, &self.plan);
        self.repairs = encoder.repair_packets(0, self.block.repairs as u32);
    }

    fn decode(&mut self) {
        self.decoded = self.try_decode().expect("as many packets as decoded before");
    }

    fn decoded(&self) -> Vec<&[u8]> {
        let symbols: Vec<&[u8]> = self.decoded.chunks(self.block.len()).collect();
        self.block.lost.iter().map(|&lost| symbols[lost]).collect()
    }
}

/// The peer's default.
const ALIGNMENT: u8 = 8;
