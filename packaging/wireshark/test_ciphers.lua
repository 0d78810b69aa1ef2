-- Checks tidewire_ciphers.lua against published vectors, with each of the two libraries of bit operations that
-- versions of Wireshark have. `cargo test -p tidewire-cli --test analysers` runs it in tshark.

local function raw(hex)
    return (hex:gsub("%x%x", function(digits) return string.char(tonumber(digits, 16)) end))
end

local function hex(text)
    return (text:gsub(".", function(c) return string.format("%02x", c:byte()) end))
end

local key = raw("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f")
local quic = raw("25a282b9e82f06f21f488917a4fc8f1b73573685608597d0efcb076b0ab7a7a4")
local held = 0

local function expect(found, wanted, source)
    assert(hex(found):sub(1, #wanted) == wanted, source .. ": " .. hex(found))
    held = held + 1
end

package.path = __DIR__ .. "?.lua;" .. package.path
local native = bit32
for _, library in ipairs({ native or bit, bit }) do
    bit32 = library
    package.loaded.tidewire_ciphers = nil
    local ciphers = require("tidewire_ciphers")
    expect(ciphers.header_mask({ header_aes = ciphers.aes_schedule(key) }, raw("00112233445566778899aabbccddeeff")),
        "8ea2b7ca516745bf", "FIPS 197 C.3")
    expect(ciphers.key_stream({ key = key }, raw("000000000000004a00000000"), 16), "224f51f3401bd9e12fde276fb8631ded",
        "RFC 8439 section 2.4.2")
    expect(ciphers.header_mask({ header = quic }, raw("5e5cd55c41f69080575d7999c25a5bfb")), "aefefe7d03", "RFC 9001 A.5")
end
bit32 = native
print(held .. " vectors hold")
