#include "zstd_decode.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

namespace aicf::emu {
namespace {

constexpr uint32_t kFrameMagic = 0xFD2FB528;
constexpr uint32_t kSkippableMagic = 0x184D2A50;  // low four bits are free
constexpr size_t kMostBlockBytes = 128 << 10;
constexpr int kMostHuffmanBits = 11;
constexpr int kMostSymbols = 256;

struct Damaged {
    const char* reason;
};

void check(bool good, const char* reason) {
    if (!good) throw Damaged{reason};
}

// Bytes of the input, from front to back.
class Reader {
public:
    Reader(const uint8_t* begin, size_t size_bytes) : at_(begin), end_(begin + size_bytes) {}
    size_t left() const { return static_cast<size_t>(end_ - at_); }
    const uint8_t* at() const { return at_; }
    const uint8_t* take(size_t size_bytes) {
        check(size_bytes <= left(), "the input ends early");
        const uint8_t* taken = at_;
        at_ += size_bytes;
        return taken;
    }
    uint64_t number(int num_bytes) {
        const uint8_t* bytes = take(static_cast<size_t>(num_bytes));
        uint64_t value = 0;
        for (int i = 0; i < num_bytes; ++i) value |= uint64_t{bytes[i]} << (8 * i);
        return value;
    }

private:
    const uint8_t* at_;
    const uint8_t* end_;
};

// Bits from front to back, lowest bit first: FSE table descriptions.
class ForwardBits {
public:
    ForwardBits(const uint8_t* begin, size_t size_bytes) : begin_(begin), num_bits_(size_bytes * 8) {}
    uint32_t peek(int count) const {
        uint32_t value = 0;
        for (int i = 0; i < count; ++i) {
            const size_t bit = position_ + static_cast<size_t>(i);
            if (bit < num_bits_) value |= static_cast<uint32_t>(begin_[bit / 8] >> (bit % 8) & 1) << i;
        }
        return value;
    }
    void skip(int count) {
        position_ += static_cast<size_t>(count);
        check(position_ <= num_bits_, "a table description ends early");
    }
    uint32_t take(int count) {
        const uint32_t value = peek(count);
        skip(count);
        return value;
    }
    size_t bytes_used() const { return (position_ + 7) / 8; }

private:
    const uint8_t* begin_;
    size_t num_bits_;
    size_t position_ = 0;
};

// Bits from back to front, after the highest set bit of the last byte. Reading past the front gives zeros and is counted.
class BackwardBits {
public:
    BackwardBits(const uint8_t* begin, size_t size_bytes) : begin_(begin), size_bytes_(size_bytes) {
        check(size_bytes > 0 && begin[size_bytes - 1] != 0, "a bit stream has no end mark");
        left_ = static_cast<int64_t>(size_bytes) * 8 - std::countl_zero(begin[size_bytes - 1]) - 1;
    }
    uint64_t take(int count) {
        left_ -= count;
        return bits_at(left_, count);
    }
    uint64_t peek(int count) const { return bits_at(left_ - count, count); }
    void skip(int count) { left_ -= count; }
    int64_t left() const { return left_; }  // negative once more was read than there was

private:
    uint64_t bits_at(int64_t position, int count) const {
        if (count == 0) return 0;
        if (position >= 0 && static_cast<size_t>(position) / 8 + 8 <= size_bytes_ && position % 8 + count <= 64) {
            uint64_t word;
            std::memcpy(&word, begin_ + position / 8, 8);
            return word >> (position % 8) & (~uint64_t{0} >> (64 - count));
        }
        uint64_t value = 0;
        for (int i = 0; i < count; ++i) {
            const int64_t bit = position + i;
            if (bit >= 0 && bit < static_cast<int64_t>(size_bytes_) * 8)
                value |= static_cast<uint64_t>(begin_[bit / 8] >> (bit % 8) & 1) << i;
        }
        return value;
    }

    const uint8_t* begin_;
    size_t size_bytes_;
    int64_t left_;
};

struct FseCell {
    uint8_t symbol;
    uint8_t num_bits;
    uint16_t base;
};

struct FseTable {
    int accuracy_log = -1;  // -1: not set
    std::vector<FseCell> cells;
};

// RFC 8878, 4.1.1: symbols are spread over the table by a fixed step; probability -1 takes one cell at the end.
FseTable build_fse(const std::vector<int>& probabilities, int accuracy_log) {
    const uint32_t size = 1u << accuracy_log;
    FseTable table{accuracy_log, std::vector<FseCell>(size)};
    std::vector<uint32_t> next(probabilities.size());
    uint32_t high = size;
    for (size_t symbol = 0; symbol < probabilities.size(); ++symbol) {
        if (probabilities[symbol] == -1) {
            table.cells[--high].symbol = static_cast<uint8_t>(symbol);
            next[symbol] = 1;
        } else {
            next[symbol] = static_cast<uint32_t>(probabilities[symbol]);
        }
    }
    const uint32_t step = (size >> 1) + (size >> 3) + 3;
    uint32_t position = 0;
    for (size_t symbol = 0; symbol < probabilities.size(); ++symbol) {
        for (int i = 0; i < probabilities[symbol]; ++i) {
            table.cells[position].symbol = static_cast<uint8_t>(symbol);
            do position = (position + step) & (size - 1);
            while (position >= high);
        }
    }
    check(position == 0, "an FSE table does not close");
    for (FseCell& cell : table.cells) {
        const uint32_t state = next[cell.symbol]++;
        cell.num_bits = static_cast<uint8_t>(accuracy_log - (std::bit_width(state) - 1));
        cell.base = static_cast<uint16_t>((state << cell.num_bits) - size);
    }
    return table;
}

FseTable read_fse(Reader& input, int most_log, size_t most_symbols) {
    ForwardBits bits(input.at(), input.left());
    const int accuracy_log = static_cast<int>(bits.take(4)) + 5;
    check(accuracy_log <= most_log, "an FSE table is too large");
    int remaining = (1 << accuracy_log) + 1;
    std::vector<int> probabilities;
    while (remaining > 1) {
        const int num_bits = std::bit_width(static_cast<uint32_t>(remaining));
        const int small_limit = (1 << num_bits) - 1 - remaining;  // values below it fit in one bit less
        int value = static_cast<int>(bits.peek(num_bits));
        const int low = value & ((1 << (num_bits - 1)) - 1);
        if (low < small_limit) {
            value = low;
            bits.skip(num_bits - 1);
        } else {
            if (value >= 1 << (num_bits - 1)) value -= small_limit;
            bits.skip(num_bits);
        }
        const int probability = value - 1;
        check(probabilities.size() < most_symbols, "an FSE table has too many symbols");
        probabilities.push_back(probability);
        remaining -= probability < 0 ? -probability : probability;
        if (probability != 0) continue;
        for (uint32_t repeat = 3; repeat == 3;) {
            repeat = bits.take(2);
            check(probabilities.size() + repeat <= most_symbols, "an FSE table has too many symbols");
            probabilities.insert(probabilities.end(), repeat, 0);
        }
    }
    check(remaining == 1, "the probabilities of an FSE table do not add up");
    input.take(bits.bytes_used());
    return build_fse(probabilities, accuracy_log);
}

class FseState {
public:
    FseState(const FseTable& table, BackwardBits& bits) : table_(&table), state_(static_cast<uint32_t>(bits.take(table.accuracy_log))) {}
    uint8_t symbol() const { return table_->cells[state_].symbol; }
    int num_bits() const { return table_->cells[state_].num_bits; }
    void advance(BackwardBits& bits) {
        const FseCell& cell = table_->cells[state_];
        state_ = cell.base + static_cast<uint32_t>(bits.take(cell.num_bits));
    }

private:
    const FseTable* table_;
    uint32_t state_;
};

struct HuffmanCell {
    uint8_t symbol;
    uint8_t num_bits;
};

struct HuffmanTable {
    int num_bits = 0;  // 0: not set
    std::vector<HuffmanCell> cells;
};

// RFC 8878, 4.2.1: a weight w > 0 means a code of num_bits + 1 - w bits; the last weight is what completes the tree.
HuffmanTable build_huffman(std::vector<uint8_t> weights) {
    uint32_t sum = 0;
    for (const uint8_t weight : weights) {
        check(weight <= kMostHuffmanBits, "a Huffman weight is too large");
        sum += weight == 0 ? 0 : 1u << (weight - 1);
    }
    check(sum != 0, "a Huffman table has no symbols");
    const int num_bits = std::bit_width(sum);
    check(num_bits <= kMostHuffmanBits, "a Huffman table is too deep");
    const uint32_t rest = (1u << num_bits) - sum;
    check(std::has_single_bit(rest), "a Huffman tree is not complete");
    check(weights.size() < kMostSymbols, "a Huffman table has too many symbols");
    weights.push_back(static_cast<uint8_t>(std::bit_width(rest)));
    HuffmanTable table{num_bits, std::vector<HuffmanCell>(size_t{1} << num_bits)};
    size_t at = 0;
    for (int weight = 1; weight <= num_bits; ++weight) {
        for (size_t symbol = 0; symbol < weights.size(); ++symbol) {
            if (weights[symbol] != weight) continue;
            const size_t count = size_t{1} << (weight - 1);
            check(at + count <= table.cells.size(), "a Huffman table overflows");
            std::fill_n(table.cells.begin() + static_cast<ptrdiff_t>(at), count,
                        HuffmanCell{static_cast<uint8_t>(symbol), static_cast<uint8_t>(num_bits + 1 - weight)});
            at += count;
        }
    }
    check(at == table.cells.size(), "a Huffman table has gaps");
    return table;
}

HuffmanTable read_huffman(Reader& input) {
    const auto header = static_cast<uint8_t>(input.number(1));
    std::vector<uint8_t> weights;
    if (header >= 128) {
        const size_t count = header - 127u;
        const uint8_t* packed = input.take((count + 1) / 2);
        for (size_t i = 0; i < count; ++i) weights.push_back(i % 2 == 0 ? packed[i / 2] >> 4 : packed[i / 2] & 15);
        return build_huffman(std::move(weights));
    }
    constexpr int kMostWeightLog = 6;
    Reader packed(input.take(header), header);
    const FseTable table = read_fse(packed, kMostWeightLog, kMostHuffmanBits + 1);
    BackwardBits bits(packed.at(), packed.left());
    FseState even(table, bits), odd(table, bits);
    check(bits.left() >= 0, "the weights of a Huffman table end early");
    // Two states take turns; when the bits run out, the other state still holds one symbol.
    for (FseState *now = &even, *other = &odd;; std::swap(now, other)) {
        check(weights.size() + 2 < kMostSymbols, "a Huffman table has too many symbols");
        weights.push_back(now->symbol());
        if (bits.left() < now->num_bits()) {
            weights.push_back(other->symbol());
            break;
        }
        now->advance(bits);
    }
    return build_huffman(std::move(weights));
}

void decode_huffman(const HuffmanTable& table, const uint8_t* source, size_t size_bytes, uint8_t* out, size_t count) {
    BackwardBits bits(source, size_bytes);
    for (size_t i = 0; i < count; ++i) {
        const HuffmanCell cell = table.cells[bits.peek(table.num_bits)];
        bits.skip(cell.num_bits);
        out[i] = cell.symbol;
    }
    check(bits.left() == 0, "a Huffman stream does not end where it should");
}

struct CodeRange {
    uint32_t base;
    uint8_t extra_bits;
};

constexpr std::array<CodeRange, 36> kLiteralLengths = {
    {{0, 0},   {1, 0},   {2, 0},     {3, 0},     {4, 0},     {5, 0},     {6, 0},      {7, 0},      {8, 0},
     {9, 0},   {10, 0},  {11, 0},    {12, 0},    {13, 0},    {14, 0},    {15, 0},     {16, 1},     {18, 1},
     {20, 1},  {22, 1},  {24, 2},    {28, 2},    {32, 3},    {40, 3},    {48, 4},     {64, 6},     {128, 7},
     {256, 8}, {512, 9}, {1024, 10}, {2048, 11}, {4096, 12}, {8192, 13}, {16384, 14}, {32768, 15}, {65536, 16}}};

constexpr std::array<CodeRange, 53> make_match_lengths() {
    std::array<CodeRange, 53> ranges{};
    for (uint32_t i = 0; i < 32; ++i) ranges[i] = {i + 3, 0};
    constexpr uint8_t kExtra[] = {1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    constexpr uint32_t kBase[] = {35, 37, 39, 41, 43, 47, 51, 59, 67, 83, 99, 131, 259, 515, 1027, 2051, 4099, 8195, 16387, 32771, 65539};
    for (size_t i = 0; i < std::size(kExtra); ++i) ranges[32 + i] = {kBase[i], kExtra[i]};
    return ranges;
}
constexpr std::array<CodeRange, 53> kMatchLengths = make_match_lengths();

const std::vector<int> kDefaultLiteralLengths = {4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1,  1,  2,  2,
                                                 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1};
const std::vector<int> kDefaultMatchLengths = {1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  1,  1,  1,  1,  1,  1, 1,
                                               1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1};
const std::vector<int> kDefaultOffsets = {1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1};

// One kind of code in the sequences: how its table may be given.
struct SequenceCode {
    const std::vector<int>* defaults;
    int default_log;
    int most_log;
    size_t most_symbols;
};
const SequenceCode kLiteralCode = {&kDefaultLiteralLengths, 6, 9, 36};
const SequenceCode kOffsetCode = {&kDefaultOffsets, 5, 8, 32};
const SequenceCode kMatchCode = {&kDefaultMatchLengths, 6, 9, 53};

void read_sequence_table(Reader& input, int mode, const SequenceCode& code, FseTable& table) {
    switch (mode) {
        case 0: table = build_fse(*code.defaults, code.default_log); break;
        case 1: {
            const auto symbol = static_cast<uint8_t>(input.number(1));
            check(symbol < code.most_symbols, "an RLE table has an unknown code");
            table = FseTable{0, {FseCell{symbol, 0, 0}}};
            break;
        }
        case 2: table = read_fse(input, code.most_log, code.most_symbols); break;
        default: check(table.accuracy_log >= 0, "a table is to be repeated, but there is none");
    }
}

uint64_t xxhash64(const uint8_t* data, size_t size_bytes) {
    constexpr uint64_t kP1 = 0x9E3779B185EBCA87, kP2 = 0xC2B2AE3D27D4EB4F, kP3 = 0x165667B19E3779F9, kP4 = 0x85EBCA77C2B2AE63,
                       kP5 = 0x27D4EB2F165667C5;
    const auto load64 = [&](size_t at) {
        uint64_t v;
        std::memcpy(&v, data + at, 8);
        return v;
    };
    const auto round = [&](uint64_t acc, uint64_t lane) { return std::rotl(acc + lane * kP2, 31) * kP1; };
    uint64_t hash = kP5;
    size_t at = 0;
    if (size_bytes >= 32) {
        std::array<uint64_t, 4> acc = {kP1 + kP2, kP2, 0, 0 - kP1};
        for (; at + 32 <= size_bytes; at += 32)
            for (size_t i = 0; i < 4; ++i) acc[i] = round(acc[i], load64(at + 8 * i));
        hash = std::rotl(acc[0], 1) + std::rotl(acc[1], 7) + std::rotl(acc[2], 12) + std::rotl(acc[3], 18);
        for (const uint64_t a : acc) hash = (hash ^ round(0, a)) * kP1 + kP4;
    }
    hash += size_bytes;
    for (; at + 8 <= size_bytes; at += 8) hash = std::rotl(hash ^ round(0, load64(at)), 27) * kP1 + kP4;
    if (at + 4 <= size_bytes) {
        uint32_t word;
        std::memcpy(&word, data + at, 4);
        hash = std::rotl(hash ^ word * kP1, 23) * kP2 + kP3;
        at += 4;
    }
    for (; at < size_bytes; ++at) hash = std::rotl(hash ^ data[at] * kP5, 11) * kP1;
    hash = (hash ^ hash >> 33) * kP2;
    hash = (hash ^ hash >> 29) * kP3;
    return hash ^ hash >> 32;
}

class Frame {
public:
    Frame(Reader& input, size_t most_bytes, std::string& out) : input_(input), most_bytes_(most_bytes), out_(out) {}

    void decode() {
        const auto descriptor = static_cast<uint8_t>(input_.number(1));
        const bool single_segment = (descriptor >> 5 & 1) != 0;
        const bool has_checksum = (descriptor >> 2 & 1) != 0;
        check((descriptor >> 3 & 1) == 0, "a reserved bit of the frame header is set");
        if (!single_segment) input_.number(1);  // the window size: all output is kept, so any window will do
        constexpr int kDictionaryBytes[] = {0, 1, 2, 4};
        check(input_.number(kDictionaryBytes[descriptor & 3]) == 0, "the frame needs a dictionary");
        const int size_code = descriptor >> 6;
        const int size_bytes = size_code == 0 ? (single_segment ? 1 : 0) : 1 << size_code;
        const uint64_t content_bytes = input_.number(size_bytes) + (size_code == 1 ? 256 : 0);
        if (size_bytes != 0) check(content_bytes <= most_bytes_, "the frame is larger than it may be");
        for (bool last = false; !last;) {
            const auto header = static_cast<uint32_t>(input_.number(3));
            last = (header & 1) != 0;
            decode_block(header >> 1 & 3, header >> 3);
        }
        if (size_bytes != 0) check(out_.size() == content_bytes, "the content is not as long as the frame says");
        if (!has_checksum) return;
        const uint64_t hash = xxhash64(reinterpret_cast<const uint8_t*>(out_.data()), out_.size());
        check(input_.number(4) == (hash & 0xFFFFFFFF), "the checksum does not match");
    }

private:
    void decode_block(uint32_t type, size_t size) {
        check(size <= kMostBlockBytes, "a block is too large");
        if (type == 0) {
            grow(size);
            out_.append(reinterpret_cast<const char*>(input_.take(size)), size);
        } else if (type == 1) {
            grow(size);
            out_.append(size, static_cast<char>(input_.number(1)));
        } else {
            check(type == 2, "a block has a reserved type");
            Reader block(input_.take(size), size);
            read_literals(block);
            run_sequences(block);
        }
    }

    void grow(size_t bytes) const { check(bytes <= most_bytes_ - out_.size(), "the content is longer than it may be"); }

    void read_literals(Reader& block) {
        const uint8_t first = block.left() > 0 ? *block.at() : 0;
        const int type = first & 3;
        const int format = first >> 2 & 3;
        size_t regenerated = 0;
        if (type < 2) {  // raw or RLE
            const int header_bytes = format == 1 ? 2 : format == 3 ? 3 : 1;
            regenerated = block.number(header_bytes) >> (header_bytes == 1 ? 3 : 4);
            check(regenerated <= kMostBlockBytes, "a literals section is too large");
            if (type == 0) {
                const uint8_t* bytes = block.take(regenerated);
                literals_.assign(bytes, bytes + regenerated);
            } else {
                literals_.assign(regenerated, static_cast<uint8_t>(block.number(1)));
            }
            return;
        }
        constexpr int kHeaderBytes[] = {3, 3, 4, 5};
        constexpr int kSizeBits[] = {10, 10, 14, 18};
        const uint64_t header = block.number(kHeaderBytes[format]) >> 4;
        const int bits = kSizeBits[format];
        regenerated = header & ((uint64_t{1} << bits) - 1);
        const size_t compressed = header >> bits;
        check(regenerated <= kMostBlockBytes, "a literals section is too large");
        Reader section(block.take(compressed), compressed);
        if (type == 2) huffman_ = read_huffman(section);
        check(huffman_.num_bits != 0, "a Huffman table is to be repeated, but there is none");
        literals_.resize(regenerated);
        if (format == 0) {
            decode_huffman(huffman_, section.at(), section.left(), literals_.data(), regenerated);
            return;
        }
        std::array<size_t, 4> sizes{};
        for (size_t i = 0; i < 3; ++i) sizes[i] = section.number(2);
        check(sizes[0] + sizes[1] + sizes[2] <= section.left(), "the Huffman streams are longer than their section");
        sizes[3] = section.left() - sizes[0] - sizes[1] - sizes[2];
        const size_t part = (regenerated + 3) / 4;
        check(part * 3 <= regenerated, "four Huffman streams for too few literals");
        for (size_t i = 0; i < 4; ++i)
            decode_huffman(huffman_, section.take(sizes[i]), sizes[i], literals_.data() + i * part, i < 3 ? part : regenerated - 3 * part);
    }

    void run_sequences(Reader& block) {
        size_t count = block.number(1);
        if (count >= 128) count = count == 255 ? block.number(2) + 0x7F00 : ((count - 128) << 8) + block.number(1);
        size_t literal = 0;
        const size_t block_begin = out_.size();
        if (count > 0) {
            const auto modes = static_cast<uint8_t>(block.number(1));
            check((modes & 3) == 0, "reserved bits of the sequences are set");
            read_sequence_table(block, modes >> 6, kLiteralCode, literal_table_);
            read_sequence_table(block, modes >> 4 & 3, kOffsetCode, offset_table_);
            read_sequence_table(block, modes >> 2 & 3, kMatchCode, match_table_);
            BackwardBits bits(block.at(), block.left());
            FseState literal_state(literal_table_, bits), offset_state(offset_table_, bits), match_state(match_table_, bits);
            for (size_t i = 0; i < count; ++i) {
                const int offset_code = offset_state.symbol();
                const uint64_t offset_value = (uint64_t{1} << offset_code) + bits.take(offset_code);
                const CodeRange match = kMatchLengths[match_state.symbol()];
                const size_t match_length = match.base + bits.take(match.extra_bits);
                const CodeRange run = kLiteralLengths[literal_state.symbol()];
                const size_t run_length = run.base + bits.take(run.extra_bits);
                check(bits.left() >= 0, "the sequences end early");
                append_literals(literal, run_length);
                append_match(resolve_offset(offset_value, run_length), match_length);
                check(out_.size() - block_begin <= kMostBlockBytes, "a block decodes to more than 128 KiB");
                if (i + 1 == count) break;
                literal_state.advance(bits);
                match_state.advance(bits);
                offset_state.advance(bits);
            }
            check(bits.left() == 0, "the sequences do not end where they should");
        } else {
            check(block.left() == 0, "a block without sequences has bytes left over");
        }
        append_literals(literal, literals_.size() - literal);
        check(out_.size() - block_begin <= kMostBlockBytes, "a block decodes to more than 128 KiB");
    }

    void append_literals(size_t& literal, size_t count) {
        check(count <= literals_.size() - literal, "the sequences use more literals than there are");
        grow(count);
        out_.append(reinterpret_cast<const char*>(literals_.data()) + literal, count);
        literal += count;
    }

    // RFC 8878, 3.1.1.5: values 1 to 3 name recent offsets, shifted by one after an empty run of literals.
    size_t resolve_offset(uint64_t value, size_t run_length) {
        if (value > 3) {
            recent_ = {value - 3, recent_[0], recent_[1]};
            return recent_[0];
        }
        const size_t index = value - 1 + (run_length == 0 ? 1 : 0);
        const uint64_t offset = index == 3 ? recent_[0] - 1 : recent_[index];
        check(offset != 0, "a match has offset 0");
        if (index >= 2) recent_[2] = recent_[1];
        if (index >= 1) recent_[1] = recent_[0];
        recent_[0] = offset;
        return offset;
    }

    void append_match(size_t offset, size_t length) {
        check(offset <= out_.size(), "a match begins before the content");
        grow(length);
        const size_t from = out_.size() - offset;
        const size_t to = out_.size();
        out_.resize(to + length);
        for (size_t i = 0; i < length; ++i) out_[to + i] = out_[from + i];
    }

    Reader& input_;
    size_t most_bytes_;
    std::string& out_;
    std::vector<uint8_t> literals_;
    HuffmanTable huffman_;
    FseTable literal_table_, offset_table_, match_table_;
    std::array<uint64_t, 3> recent_ = {1, 4, 8};
};

}  // namespace

bool zstd_decode(const uint8_t* source, size_t size_bytes, size_t most_bytes, std::string* plain, std::string* error) {
    plain->clear();
    try {
        Reader input(source, size_bytes);
        auto magic = static_cast<uint32_t>(input.number(4));
        while ((magic & ~15u) == kSkippableMagic) {
            input.take(input.number(4));
            magic = static_cast<uint32_t>(input.number(4));
        }
        check(magic == kFrameMagic, "it does not begin with zstd's magic number");
        Frame(input, most_bytes, *plain).decode();
        return true;
    } catch (const Damaged& damaged) {
        *error = damaged.reason;
        return false;
    }
}

}  // namespace aicf::emu
