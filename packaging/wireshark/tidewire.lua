-- Wireshark dissector for the Tidewire protocol, version 1 (docs/wire.md). docs/wireshark.md says how to use it.
--
-- Without keys it shows the long packets of the handshake and the clear part of short packets. With a key log
-- (tidewire --keylog, preference `tidewire.keylog`) it also removes header protection, decrypts packets and shows
-- frames, source symbols and the stream and message frames in them.
--
-- The dissector does not verify tags. Bytes that were changed on the way therefore decrypt to nonsense, which is shown
-- as malformed.

local bits = bit32 or bit
local band, bxor, rshift = bits.band, bits.bxor, bits.rshift
local byte, char = string.byte, string.char

-- Wireshark runs each file of its folder of plugins, and in any order.
package.path = __DIR__ .. "?.lua;" .. package.path
local ciphers = require("tidewire_ciphers")
local xored, bytes_of = ciphers.xored, ciphers.bytes_of

local tidewire = Proto("tidewire", "Tidewire")
tidewire.prefs.keylog = Pref.string("Key log file", "", "File that `tidewire --keylog FILE` wrote")

-------------------------------------------------------------------------------------------------- keys and sessions

-- Keys by session ("initiator id responder id"), sealer ("I" or "R") and phase.
local keys = {}
-- By connection id in hex: the session, and who seals the packets that carry the id.
local by_id = {}
-- Number and phase of the newest packet, by session and sealer.
local directions = {}
-- What the first pass found out about each frame of the capture, by its number.
local seen = {}
-- The key log that was read, how much of it, and how long it was then.
local read_file, read_bytes, read_size = nil, 0, 0

local function raw(hex)
    return (hex:gsub("%x%x", function(digits) return char(tonumber(digits, 16)) end))
end

local function learn(initiator, responder)
    local session = initiator .. " " .. responder
    by_id[responder] = by_id[responder] or { session = session, sealer = "I" }
    by_id[initiator] = by_id[initiator] or { session = session, sealer = "R" }
end

local function learn_key(line)
    local initiator, responder, sealer, phase, cipher, header, key, iv =
        line:match("^TIDEWIRE_KEY (%x+) (%x+) ([IR]) (%d+) (%S+) (%x+) (%x+) (%x+)%s*$")
    if not iv or #initiator ~= 16 or #responder ~= 16 or #header ~= 64 or #key ~= 64 or #iv ~= 24 then
        return
    end
    learn(initiator, responder)
    local entry = { header = raw(header), key = raw(key), iv = raw(iv) }
    if cipher == "aes-256-gcm" then
        entry.header_aes, entry.aes = ciphers.aes_schedule(entry.header), ciphers.aes_schedule(entry.key)
    elseif cipher ~= "chacha20-poly1305" then
        return
    end
    local session = initiator .. " " .. responder
    keys[session] = keys[session] or { I = {}, R = {} }
    keys[session][sealer][tonumber(phase)] = entry
end

-- Reads the whole lines that were added to the key log since the last call: during a running capture it grows.
local function read_keys()
    local name = tidewire.prefs.keylog
    if read_file ~= name then
        read_file, read_bytes, read_size = name, 0, 0
    end
    local file = name ~= "" and io.open(name, "rb")
    if not file then
        return
    end
    local size = file:seek("end")
    if size ~= read_size then
        read_size = size
        file:seek("set", read_bytes)
        for line in function() return file:read("*L") end do
            if line:sub(-1) ~= "\n" then
                break
            end
            read_bytes = read_bytes + #line
            learn_key(line)
        end
    end
    file:close()
end

function tidewire.init()
    keys, by_id, directions, seen, read_file = {}, {}, {}, {}, nil
    read_keys()
end

------------------------------------------------------------------------------------------------------------ fields

local f = {}
local function field(name, kind, title, ...)
    f[name] = ProtoField[kind]("tidewire." .. name, title, ...)
end

local kinds = { [0] = "HELLO", "REPLY", "COOKIE", "VERSIONS" }
local frames = {
    [0x00] = "PAD", [0x01] = "PING", [0x02] = "FEEDBACK", [0x03] = "CLOSE", [0x04] = "POLICY", [0x05] = "PATH_CHALLENGE",
    [0x06] = "PATH_RESPONSE", [0x07] = "NEW_CID", [0x08] = "SLICE", [0x09] = "BASE", [0x0a] = "REKEY", [0x0b] = "SLICE (generations)",
    [0x0c] = "TRAIN", [0x0d] = "TRAIN_REPORT", [0x0e] = "RANKS", [0x0f] = "HOST_DROPS", [0x10] = "SRC", [0x11] = "SRC again",
    [0x12] = "REPAIR", [0x13] = "REPAIR on feedback", [0x14] = "SRC (generations)", [0x15] = "SRC again (generations)",
    [0x16] = "REPAIR (generations)", [0x17] = "REPAIR on feedback (generations)", [0x18] = "RECODED",
}
local codes = { [0] = "Rlc", "Cauchy", "Rlc8681", "Rlc16", "Lt", "SemiRandomLt", "RaptorQ", "RsFft" }
local closes = { [0] = "done", "idle", "malformed", "protocol", "flow control", "too many streams", "internal", "refused", "polluted", "path too narrow" }

field("long", "bool", "Long form", 8, nil, 0x80)
field("type", "uint8", "Type", base.DEC, kinds, 0x60)
field("phase_bit", "bool", "Key phase bit", 8, nil, 0x20)
field("wait_bit", "bool", "FEEDBACK may wait", 8, nil, 0x10)
field("version", "uint32", "Version", base.HEX)
field("destination", "bytes", "Destination id")
field("source", "bytes", "Source id")
field("authentication", "uint8", "Authentication", base.DEC, { "psk (NNpsk0)", "key (IKpsk2)", "tls" })
field("suite", "uint8", "Suite", base.DEC, { "25519, AES-256-GCM, SHA-256", "25519, ChaCha20-Poly1305, BLAKE2s" })
field("noise_length", "uint16", "Length of the Noise message")
field("noise", "bytes", "Noise message")
field("cookie_nonce", "bytes", "Nonce")
field("cookie", "bytes", "Sealed cookie")
field("padding", "bytes", "Padding")
field("mac1", "bytes", "mac1")
field("mac2", "bytes", "mac2")
field("sealed_number", "bytes", "Packet number (protected)")
field("sealed", "bytes", "Sealed frames")
field("tag", "bytes", "Tag (not verified)")
field("number", "uint64", "Packet number")
field("phase", "uint64", "Key phase")
field("sealer", "string", "Sealed by")
field("frame", "uint64", "Frame", base.HEX, frames)
for _, name in ipairs({ "lane", "id", "back", "base", "first", "count", "key", "offset", "total", "length", "edge", "seen",
    "deficit", "credit", "stream", "final", "sequence", "retire", "path", "packets", "distance", "span", "generation",
    "parameter", "largest", "delay", "ect0", "ect1", "ce", "streams", "room" }) do
    field(name, "uint64", name)
end
field("code", "uint8", "Code of the repair", base.DEC, codes)
field("close", "uint64", "Close code", base.DEC, closes)
field("stream_code", "uint64", "Code of the application")
field("flags", "uint8", "Flags", base.HEX)
field("relays", "uint8", "Relays")
field("arrival", "uint32", "Arrival (us)")
field("newest_arrival", "uint24", "Arrival of the newest packet (16 us)")
field("text", "string", "Text")
field("symbol", "bytes", "Symbol")
field("symbol_length", "uint16", "Length of the symbol")
field("symbol_time", "uint24", "Send time (16 us)")
field("symbol_frame", "uint64", "Frame in the symbol", base.HEX)
field("begins", "bool", "Message begins")
field("ends", "bool", "Ends")
field("in_order", "bool", "In order")
field("data", "bytes", "Data")
field("coefficients", "bytes", "Coefficients")
field("rank_list", "bytes", "Ranks of generations")
tidewire.fields = f
local malformed = ProtoExpert.new("tidewire.malformed", "Malformed, or not authentic", expert.group.MALFORMED, expert.severity.ERROR)
tidewire.experts = { malformed }

------------------------------------------------------------------------------------------------------------ reader

-- Reads fields of a Tvb from `at` up to `stop`, and adds each to `tree`. Raises an error where bytes are missing.
local Reader = {}
Reader.__index = Reader

local function reader(tvb, at, stop, tree)
    return setmetatable({ tvb = tvb, at = at, stop = stop, tree = tree }, Reader)
end

function Reader:left()
    return self.stop - self.at
end

function Reader:take(length)
    if length < 0 or length > self.stop - self.at then
        error({ short = true })
    end
    local range = length > 0 and self.tvb(self.at, length) or nil
    self.at = self.at + length
    return range
end

-- A big-endian number of `length` bytes, up to 4.
function Reader:uint(name, length)
    local range = self:take(length)
    self.tree:add(f[name], range)
    return range:uint()
end

-- A varint without a field. Numbers above 2^53 lose their low bits in the result and nowhere else.
function Reader:plain()
    if self:left() < 1 then
        error({ short = true })
    end
    local length = 2 ^ rshift(self.tvb(self.at, 1):uint(), 6)
    local range = self:take(length)
    local value = range:uint64():band(length == 8 and UInt64(0xffffffff, 0x3fffffff) or UInt64(2 ^ (8 * length - 2) - 1, 0))
    return value:tonumber(), range, value
end

function Reader:varint(name)
    local number, range, value = self:plain()
    self.tree:add(f[name], range, value)
    return number
end

function Reader:bytes(name, length)
    local range = self:take(length)
    if range then
        self.tree:add(f[name], range)
    end
    return range
end

----------------------------------------------------------------------------------------------------- inside symbols

local symbol_frames = { [0x00] = "padding", [0x01] = "RESET", [0x02] = "STOP" }
local function symbol_frame_name(kind)
    if kind >= 0x08 and kind <= 0x0f then
        return "STREAM"
    elseif kind >= 0x10 and kind <= 0x17 then
        return "MESSAGE"
    end
    return symbol_frames[kind] or "ignorable"
end

-- One frame of a symbol (docs/wire.md section 6).
local function symbol_frame(r)
    local start, parent = r.at, r.tree
    local kind, range, value = r:plain()
    local name = symbol_frame_name(kind)
    local tree = parent:add(f.symbol_frame, range, value)
    tree:append_text(" " .. name)
    r.tree = tree
    local function flag(title, mask)
        tree:add(f[title], range, band(kind, mask) ~= 0)
    end
    if name == "STREAM" then
        flag("ends", 1)
        r:varint("stream")
        if band(kind, 4) ~= 0 then
            r:varint("offset")
        end
        r:bytes("data", band(kind, 2) ~= 0 and r:varint("length") or r:left())
    elseif name == "MESSAGE" then
        flag("begins", 1)
        flag("ends", 2)
        flag("in_order", 4)
        r:bytes("data", r:varint("length"))
    elseif name == "RESET" or name == "STOP" then
        r:varint("stream")
        r:varint("stream_code")
        if name == "RESET" then
            r:varint("final")
        end
    elseif name == "padding" then
        r:bytes("padding", r:left())
    elseif kind >= 0x40 then
        r:bytes("data", r:varint("length"))
    else
        error({ short = false })
    end
    r.tree = parent
    tree:set_len(r.at - start)
end

-- A source symbol to the end of the packet.
local function source_symbol(r)
    local range = r:take(r:left())
    if not range then
        return
    end
    local tree = r.tree:add(f.symbol, range)
    tree:set_text("Source symbol, " .. range:len() .. " bytes")
    local inner = reader(r.tvb, range:offset(), range:offset() + range:len(), tree)
    local length = inner:uint("symbol_length", 2)
    if length < 5 or length > range:len() then
        error({ short = true })
    end
    inner.stop = range:offset() + length
    inner:uint("symbol_time", 3)
    while inner:left() > 0 do
        symbol_frame(inner)
    end
end

------------------------------------------------------------------------------------------------------------ frames

local function feedback(r)
    local flags = r:uint("flags", 1)
    r:varint("largest")
    r:varint("delay")
    local function pairs_of(count, one, other)
        for _ = 1, count do
            r:varint(one)
            r:varint(other)
        end
    end
    local ranges = r:varint("count")
    if ranges > 0 then
        r:varint("first")
        pairs_of(ranges - 1, "offset", "length")
    end
    if band(flags, 16) ~= 0 then
        r:uint("newest_arrival", 3)
    end
    if band(flags, 1) ~= 0 then
        r:varint("ect0")
        r:varint("ect1")
        r:varint("ce")
    end
    if band(flags, 2) ~= 0 then
        r:varint("streams")
        pairs_of(r:varint("count"), "stream", "credit")
    end
    if band(flags, 4) ~= 0 then
        for _ = 1, r:varint("count") do
            for _, name in ipairs({ "lane", "edge", "seen", "deficit", "credit" }) do
                r:varint(name)
            end
            pairs_of(r:varint("count"), "offset", "length")
            pairs_of(r:varint("count"), "length", "deficit")
        end
    end
end

local function repair(r, generations)
    r:varint("lane")
    local code = r:uint("code", 1)
    for _ = 1, code == 4 and 2 or code == 5 and 1 or 0 do
        r:varint("parameter")
    end
    local first, count = r:varint("first"), r:varint("count")
    if generations then
        r:varint("key")
    else
        r.tree:add(f.key, r:take(2))
    end
    r:varint("back")
    r.tree:append_text(string.format(", symbols %.0f to %.0f", first, first + count - 1))
    r:bytes("symbol", r:left())
end

-- The body of each frame. A frame that is not here has no body.
local bodies = {
    [0x02] = feedback,
    [0x03] = function(r)
        r:varint("close")
        r:bytes("text", r:varint("length"))
    end,
    [0x04] = function(r) r:bytes("text", r:varint("length")) end,
    [0x05] = function(r) r:bytes("data", 8) end,
    [0x06] = function(r) r:bytes("data", 8) end,
    [0x07] = function(r)
        r:varint("sequence")
        r:varint("retire")
        r:varint("path")
        local id = r:bytes("destination", 8)
        -- The id is for packets to the sender of this frame, which its peer seals.
        local hex = id:bytes():tohex():lower()
        by_id[hex] = by_id[hex] or { session = r.session, sealer = r.sealer == "I" and "R" or "I" }
    end,
    [0x08] = function(r)
        for _, name in ipairs({ "lane", "id", "offset", "total" }) do
            r:varint(name)
        end
        r:bytes("data", r:varint("length"))
    end,
    [0x09] = function(r)
        r:varint("lane")
        r:varint("base")
    end,
    [0x0a] = function(r)
        r:varint("sequence")
        r:bytes("noise", r:varint("length"))
    end,
    [0x0c] = function(r) r:varint("packets") end,
    [0x0f] = function(r) r:varint("packets") end,
    [0x0d] = function(r)
        r:varint("first")
        r:varint("distance")
        r:uint("arrival", 4)
        r:varint("span")
    end,
    [0x0e] = function(r)
        r:varint("edge")
        r:varint("room")
        r:bytes("rank_list", r:varint("count"))
    end,
    [0x10] = function(r)
        r:varint("lane")
        local id = r:varint("id")
        r:varint("back")
        r.tree:append_text(string.format(", symbol %.0f", id))
        source_symbol(r)
    end,
    [0x12] = repair,
    [0x16] = function(r) repair(r, true) end,
    [0x18] = function(r)
        r:uint("relays", 1)
        r:varint("generation")
        r.tree:add(f.length, r:take(1))
        local count = r:take(1)
        r.tree:add(f.count, count)
        r:bytes("coefficients", count:uint())
        r:bytes("symbol", r:left())
    end,
}
for _, pair in ipairs({ { 0x08, 0x0b }, { 0x10, 0x11 }, { 0x10, 0x14 }, { 0x10, 0x15 }, { 0x12, 0x13 }, { 0x16, 0x17 } }) do
    bodies[pair[2]] = bodies[pair[1]]
end

-- All frames of a packet. Returns their names, without PAD and unknown ones.
local function all_frames(r, session, sealer)
    local names, parent, last = {}, r.tree, nil
    r.session, r.sealer = session, sealer
    while r:left() > 0 do
        local start = r.at
        local kind, range, value = r:plain()
        if kind == 0 and last == 0 then
            -- Padding is many frames of one byte; one line stands for all.
        elseif kind >= 0x40 or frames[kind] and range:len() == 1 then
            r.tree = parent:add(f.frame, range, value)
            if kind >= 0x40 then
                r.tree:append_text(" ignorable")
                r:bytes("data", r:varint("length"))
            elseif bodies[kind] then
                bodies[kind](r)
            end
            if kind > 0 and kind < 0x40 then
                names[#names + 1] = frames[kind]
            end
            r.tree:set_len(r.at - start)
            r.tree = parent
        else
            error({ short = false })
        end
        last = kind
    end
    return names
end

----------------------------------------------------------------------------------------------------------- packets

-- The number nearest to one past the newest whose low 32 bits are `low`.
local function expanded(low, newest)
    local expected = newest and newest + 1 or 0
    local candidate = math.floor(expected / 2 ^ 32) * 2 ^ 32 + low
    if candidate + 2 ^ 31 <= expected then
        return candidate + 2 ^ 32
    elseif candidate > expected + 2 ^ 31 and candidate >= 2 ^ 32 then
        return candidate - 2 ^ 32
    end
    return candidate
end

-- Number, phase and frames of a short packet, or nil without a key. `origin` is its entry of `by_id`.
local function opened(tvb, origin)
    local phases = keys[origin.session] and keys[origin.session][origin.sealer]
    local key = phases and phases[0]
    if not key then
        return nil
    end
    local packet = tvb:raw()
    local mask = ciphers.header_mask(key, packet:sub(14, 29))
    local first = bxor(byte(packet, 1), band(byte(mask, 1), 0x3f))
    local number = xored(packet:sub(10, 13), mask:sub(2, 5))
    local a, b, c, d = byte(number, 1, 4)
    local name = origin.session .. origin.sealer
    local direction = directions[name] or { phase = 0, phase_start = 0 }
    local full = expanded(((a * 256 + b) * 256 + c) * 256 + d, direction.newest)
    local phase = direction.phase
    if (band(first, 0x20) ~= 0) ~= (phase % 2 == 1) then
        phase = full < direction.phase_start and phase - 1 or phase + 1
    end
    key = phases[phase]
    if not key then
        return nil
    end
    local high = math.floor(full / 2 ^ 32)
    local wide = string.rep("\0", 4) .. bytes_of(high) .. number
    local nonce = xored(key.iv, wide)
    local sealed = packet:sub(14, #packet - 16)
    local frames_text = xored(sealed, ciphers.key_stream(key, nonce, #sealed))
    return { first = first, number = full, phase = phase, text = frames_text, name = name }
end

-- Called when the frames of a packet were read without an error: it is then taken for authentic.
local function advance(packet)
    local direction = directions[packet.name] or { phase = 0, phase_start = 0 }
    directions[packet.name] = direction
    if packet.phase > direction.phase then
        direction.phase, direction.phase_start = packet.phase, packet.number
    end
    direction.newest = math.max(direction.newest or 0, packet.number)
end

local function fail(tree, raised)
    if type(raised) ~= "table" then
        error(raised, 0)
    end
    tree:add_proto_expert_info(malformed)
end

local function short_packet(tvb, pinfo, tree)
    local id = tvb(1, 8):bytes():tohex():lower()
    if not by_id[id] then
        read_keys()
    end
    local origin = by_id[id]
    local packet = seen[pinfo.number]
    if not packet and origin then
        packet = opened(tvb, origin)
        if not packet then
            read_keys()
            packet = opened(tvb, origin)
        end
    end
    tree:add(f.long, tvb(0, 1), false)
    tree:add(f.destination, tvb(1, 8))
    if origin then
        tree:add(f.sealer, tvb(1, 8), origin.sealer == "I" and "initiator" or "responder"):set_generated()
    end
    if not packet then
        tree:add(f.sealed_number, tvb(9, 4))
        tree:add(f.sealed, tvb(13, tvb:len() - 29))
        tree:add(f.tag, tvb(tvb:len() - 16))
        pinfo.cols.info = "Sealed, id " .. id
        return
    end
    tree:add(f.phase_bit, tvb(0, 1), band(packet.first, 0x20) ~= 0)
    tree:add(f.wait_bit, tvb(0, 1), band(packet.first, 0x10) ~= 0)
    tree:add(f.number, tvb(9, 4), UInt64(packet.number % 2 ^ 32, math.floor(packet.number / 2 ^ 32)))
    tree:add(f.phase, tvb(0, 1), UInt64(packet.phase)):set_generated()
    local inside = ByteArray.new(packet.text, true):tvb("Decrypted frames")
    local r = reader(inside, 0, inside:len(), tree)
    local ok, names = pcall(all_frames, r, origin.session, origin.sealer)
    tree:add(f.tag, tvb(tvb:len() - 16))
    if not ok then
        pinfo.cols.info = string.format("%s %.0f: malformed", origin.sealer, packet.number)
        return fail(tree, names)
    end
    if not seen[pinfo.number] then
        seen[pinfo.number] = packet
        advance(packet)
    end
    pinfo.cols.info = string.format("%s %.0f: %s", origin.sealer, packet.number, table.concat(names, ", "))
end

local function long_packet(tvb, pinfo, tree)
    local r = reader(tvb, 1, tvb:len(), tree)
    local first = tvb(0, 1)
    local kind = rshift(band(first:uint(), 0x60), 5)
    tree:add(f.long, first)
    tree:add(f.type, first)
    r:uint("version", 4)
    local destination, source = r:bytes("destination", 8), r:bytes("source", 8)
    r:uint("authentication", 1)
    r:uint("suite", 1)
    local length = r:uint("noise_length", 2)
    if kind == 2 then
        r:bytes("cookie_nonce", 16)
        r:bytes("cookie", 16)
    else
        r:bytes("noise", length)
        r:bytes("padding", r:left() - (kind == 0 and 32 or 16))
    end
    r:bytes("mac1", 16)
    if kind == 0 then
        r:bytes("mac2", 16)
    elseif kind == 1 then
        learn(destination:bytes():tohex():lower(), source:bytes():tohex():lower())
    end
    pinfo.cols.info = string.format("%s, id %s", kinds[kind], source:bytes():tohex():lower())
end

function tidewire.dissector(tvb, pinfo, tree)
    -- 13 bytes of header, a frame and a tag.
    if tvb:len() < 30 or tvb:len() ~= tvb:reported_len() then
        return 0
    end
    pinfo.cols.protocol = "Tidewire"
    local top = tree:add(tidewire, tvb())
    local form = band(tvb(0, 1):uint(), 0x80) ~= 0 and long_packet or short_packet
    local ok, raised = pcall(form, tvb, pinfo, top)
    if not ok then
        fail(top, raised)
    end
    return tvb:len()
end

-- A HELLO, REPLY or COOKIE of version 1 shows the protocol, as does a short packet to an id that is known.
local function is_ours(tvb)
    if tvb:len() < 30 then
        return false
    end
    local first = tvb(0, 1):uint()
    if band(first, 0x80) ~= 0 then
        local length = tvb:reported_len()
        local lengths = { [0] = length == 300, length <= 150, length == 73 }
        return tvb(1, 4):uint() == 0x54570001 and lengths[rshift(band(first, 0x60), 5)] == true
    end
    return band(first, 0x40) ~= 0 and by_id[tvb(1, 8):bytes():tohex():lower()] ~= nil
end

tidewire:register_heuristic("udp", function(tvb, pinfo, tree)
    if not is_ours(tvb) then
        return false
    end
    tidewire.dissector(tvb, pinfo, tree)
    pinfo.conversation = tidewire
    return true
end)
DissectorTable.get("udp.port"):add_for_decode_as(tidewire)
