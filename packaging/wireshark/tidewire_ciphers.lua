-- Ciphers of the Tidewire dissector: AES-256 in counter mode (of GCM) and ChaCha20, for decryption only. Wireshark 4.0
-- gives Lua none. Tags are not verified.

-- Lua 5.2 and later versions of Wireshark differ in their library of bit operations. This file uses only what both
-- have, and treats results as 32 bits of unknown sign.
local bits = bit32 or bit
local band, bor, bxor, lshift, rshift = bits.band, bits.bor, bits.bxor, bits.lshift, bits.rshift
local byte, char = string.byte, string.char

-- Big-endian word `n` (from 0) of a string.
local function word(text, n)
    local a, b, c, d = byte(text, 4 * n + 1, 4 * n + 4)
    return bor(lshift(a, 24), lshift(b, 16), lshift(c, 8), d)
end

local function bytes_of(w)
    return char(band(rshift(w, 24), 255), band(rshift(w, 16), 255), band(rshift(w, 8), 255), band(w, 255))
end

-- Tables of AES (FIPS 197): the S-box, and MixColumns of its values for each of the four rows.
local sbox, mix = {}, { {}, {}, {}, {} }
do
    local function double(x)
        return band(bxor(lshift(x, 1), x >= 128 and 0x1b or 0), 255)
    end
    local power, log, x = {}, {}, 1
    for i = 0, 254 do
        power[i], log[x] = x, i
        x = bxor(x, double(x))
    end
    for value = 0, 255 do
        local inverse = value == 0 and 0 or power[(255 - log[value]) % 255]
        local s = inverse
        for turn = 1, 4 do
            s = bxor(s, band(bor(lshift(inverse, turn), rshift(inverse, 8 - turn)), 255))
        end
        s = bxor(s, 0x63)
        sbox[value] = s
        local two = double(s)
        local column = { two, s, s, bxor(two, s) }
        for row = 0, 3 do
            local a, b, c, d = (4 - row) % 4, (5 - row) % 4, (6 - row) % 4, (7 - row) % 4
            mix[row + 1][value] = bor(lshift(column[a + 1], 24), lshift(column[b + 1], 16), lshift(column[c + 1], 8),
                column[d + 1])
        end
    end
end

local function substituted(w)
    return bor(lshift(sbox[band(rshift(w, 24), 255)], 24), lshift(sbox[band(rshift(w, 16), 255)], 16),
        lshift(sbox[band(rshift(w, 8), 255)], 8), sbox[band(w, 255)])
end

-- The 60 words of the expanded key.
local function aes_schedule(key)
    local w, constant = {}, 1
    for i = 0, 7 do
        w[i] = word(key, i)
    end
    for i = 8, 59 do
        local t = w[i - 1]
        if i % 8 == 0 then
            t = bxor(substituted(bor(lshift(t, 8), rshift(t, 24))), lshift(constant, 24))
            constant = constant * 2
        elseif i % 8 == 4 then
            t = substituted(t)
        end
        w[i] = bxor(w[i - 8], t)
    end
    return w
end

-- Encrypts one block of four words.
local function aes(w, a, b, c, d)
    local m1, m2, m3, m4 = mix[1], mix[2], mix[3], mix[4]
    a, b, c, d = bxor(a, w[0]), bxor(b, w[1]), bxor(c, w[2]), bxor(d, w[3])
    local function column(p, q, r, s, k)
        return bxor(m1[band(rshift(p, 24), 255)], m2[band(rshift(q, 16), 255)], m3[band(rshift(r, 8), 255)],
            m4[band(s, 255)], w[k])
    end
    for k = 4, 52, 4 do
        a, b, c, d = column(a, b, c, d, k), column(b, c, d, a, k + 1), column(c, d, a, b, k + 2), column(d, a, b, c, k + 3)
    end
    local function last(p, q, r, s, k)
        return bxor(bor(lshift(sbox[band(rshift(p, 24), 255)], 24), lshift(sbox[band(rshift(q, 16), 255)], 16),
            lshift(sbox[band(rshift(r, 8), 255)], 8), sbox[band(s, 255)]), w[k])
    end
    return last(a, b, c, d, 56), last(b, c, d, a, 57), last(c, d, a, b, 58), last(d, a, b, c, 59)
end

-- One block of the key stream of ChaCha20 (RFC 8439), 64 bytes. Its words are little-endian.
local function chacha(key, counter, nonce)
    local function little(text, n)
        local a, b, c, d = byte(text, 4 * n + 1, 4 * n + 4)
        return bor(a, lshift(b, 8), lshift(c, 16), lshift(d, 24))
    end
    local s = { 0x61707865, 0x3320646e, 0x79622d32, 0x6b206574 }
    for n = 0, 7 do
        s[n + 5] = little(key, n)
    end
    s[13] = counter
    for n = 0, 2 do
        s[n + 14] = little(nonce, n)
    end
    local x = {}
    for n = 1, 16 do
        x[n] = s[n]
    end
    local function turned(v, n)
        return bor(lshift(v, n), rshift(v, 32 - n))
    end
    local function quarter(a, b, c, d)
        x[a] = band(x[a] + x[b], 0xffffffff)
        x[d] = turned(bxor(x[d], x[a]), 16)
        x[c] = band(x[c] + x[d], 0xffffffff)
        x[b] = turned(bxor(x[b], x[c]), 12)
        x[a] = band(x[a] + x[b], 0xffffffff)
        x[d] = turned(bxor(x[d], x[a]), 8)
        x[c] = band(x[c] + x[d], 0xffffffff)
        x[b] = turned(bxor(x[b], x[c]), 7)
    end
    for _ = 1, 10 do
        quarter(1, 5, 9, 13) quarter(2, 6, 10, 14) quarter(3, 7, 11, 15) quarter(4, 8, 12, 16)
        quarter(1, 6, 11, 16) quarter(2, 7, 12, 13) quarter(3, 8, 9, 14) quarter(4, 5, 10, 15)
    end
    local out = {}
    for n = 1, 16 do
        out[n] = bytes_of(band(x[n] + s[n], 0xffffffff)):reverse()
    end
    return table.concat(out)
end

local function xored(a, b)
    local out = {}
    for n = 1, #a do
        out[n] = char(band(bxor(byte(a, n), byte(b, n)), 255))
    end
    return table.concat(out)
end

-- The first `length` bytes of the key stream that encrypts payloads: GCM counts from 2, ChaCha20 from 1.
local function key_stream(key, nonce, length)
    local out = {}
    if key.aes then
        local a, b, c = word(nonce, 0), word(nonce, 1), word(nonce, 2)
        for n = 0, math.ceil(length / 16) - 1 do
            local p, q, r, s = aes(key.aes, a, b, c, n + 2)
            out[n + 1] = bytes_of(p) .. bytes_of(q) .. bytes_of(r) .. bytes_of(s)
        end
    else
        for n = 0, math.ceil(length / 64) - 1 do
            out[n + 1] = chacha(key.key, n + 1, nonce)
        end
    end
    return table.concat(out)
end

-- The mask of header protection (RFC 9001 section 5.4).
local function header_mask(key, sample)
    if key.header_aes then
        local a, b = aes(key.header_aes, word(sample, 0), word(sample, 1), word(sample, 2), word(sample, 3))
        return bytes_of(a) .. bytes_of(b)
    end
    local a, b, c, d = byte(sample, 1, 4)
    return chacha(key.header, bor(a, lshift(b, 8), lshift(c, 16), lshift(d, 24)), sample:sub(5))
end

return { aes_schedule = aes_schedule, key_stream = key_stream, header_mask = header_mask, xored = xored, bytes_of = bytes_of }
