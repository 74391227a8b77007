// Writes a board file:  make_board PATH key=value ...
// Every key below is needed, once; there are no defaults. Versions are up to four numbers. The
// keys marked `each` take one value for each card, separated by commas, and so say how many cards
// the board has; all others hold for every card.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "board.h"

namespace {

using xpusim::Board;
using xpusim::BoardDevice;

[[noreturn]] void refuse(const std::string& text) { throw std::invalid_argument(text); }

std::vector<std::string> split(const std::string& text, char mark) {
    std::vector<std::string> parts(1);
    for (char letter : text) {
        if (letter == mark) {
            parts.emplace_back();
        } else {
            parts.back() += letter;
        }
    }
    return parts;
}

uint64_t number(const std::string& text) {
    size_t read = 0;
    if (text.empty() || text[0] == '-') refuse("not a number: \"" + text + "\"");
    uint64_t value = std::stoull(text, &read, 0);
    if (read != text.size()) refuse("not a number: \"" + text + "\"");
    return value;
}

uint32_t small(const std::string& text) {
    uint64_t value = number(text);
    if (value > UINT32_MAX) refuse("too large: " + text);
    return static_cast<uint32_t>(value);
}

template <size_t size>
void copy_text(char (&target)[size], const std::string& text) {
    if (text.size() >= size) refuse("too long: \"" + text + "\"");
    std::memcpy(target, text.c_str(), text.size() + 1);
}

void version(uint32_t (&target)[4], const std::string& text) {
    std::vector<std::string> parts = split(text, '.');
    if (parts.size() > 4) refuse("more than four numbers: " + text);
    for (size_t i = 0; i < parts.size(); ++i) target[i] = small(parts[i]);
}

// "0000:03:00.0" as the bits of XPUATTR_PCI_ADDRESS.
uint64_t pci_address(const std::string& text) {
    unsigned domain = 0, bus = 0, slot = 0, function = 0;
    char more = 0;
    int read = std::sscanf(text.c_str(), "%4x:%2x:%2x.%1x%c", &domain, &bus, &slot, &function,
                           &more);
    if (read != 4 || slot > 31 || function > 7) refuse("not a PCI address: \"" + text + "\"");
    return (static_cast<uint64_t>(domain) << 16) | (bus << 8) | (slot << 3) | function;
}

using ForBoard = std::function<void(Board&, const std::string&)>;
using ForCard = std::function<void(BoardDevice&, const std::string&)>;

const std::map<std::string, ForBoard>& board_keys() {
    static const std::map<std::string, ForBoard> keys = {
        {"profile", [](Board& b, const std::string& v) { copy_text(b.profile, v); }},
        {"driver", [](Board& b, const std::string& v) { version(b.driver, v); }},
        {"runtime", [](Board& b, const std::string& v) { version(b.runtime, v); }},
    };
    return keys;
}

ForCard into(uint32_t BoardDevice::*field) {
    return [field](BoardDevice& card, const std::string& value) { card.*field = small(value); };
}

ForCard into(uint64_t BoardDevice::*field) {
    return [field](BoardDevice& card, const std::string& value) { card.*field = number(value); };
}

const std::map<std::string, ForCard>& each_keys() {
    static const std::map<std::string, ForCard> keys = {
        {"pci", [](BoardDevice& c, const std::string& v) { c.pci_address = pci_address(v); }},
        {"serial", [](BoardDevice& c, const std::string& v) { copy_text(c.serial, v); }},
        {"minor", into(&BoardDevice::minor)},
    };
    return keys;
}

const std::map<std::string, ForCard>& card_keys() {
    static const std::map<std::string, ForCard> keys = {
        {"model_name", [](BoardDevice& c, const std::string& v) { copy_text(c.model_name, v); }},
        {"firmware", [](BoardDevice& c, const std::string& v) { copy_text(c.firmware, v); }},
        {"pci_device", into(&BoardDevice::pci_device)},
        {"board_id", into(&BoardDevice::board_id)},
        {"onboard_id", into(&BoardDevice::onboard_id)},
        {"model", into(&BoardDevice::model)},
        {"clusters", into(&BoardDevice::clusters)},
        {"sdnn", into(&BoardDevice::sdnn)},
        {"copy_engines", into(&BoardDevice::copy_engines)},
        {"hardware_queues", into(&BoardDevice::hardware_queues)},
        {"encoders", into(&BoardDevice::encoders)},
        {"decoders", into(&BoardDevice::decoders)},
        {"image_units", into(&BoardDevice::image_units)},
        {"capacity", into(&BoardDevice::capacity)},
        {"page", into(&BoardDevice::page)},
        {"block", into(&BoardDevice::block)},
        {"l3_capacity", into(&BoardDevice::l3_capacity)},
        {"l3_page", into(&BoardDevice::l3_page)},
        {"idle_celsius", into(&BoardDevice::idle_celsius)},
        {"busy_celsius", into(&BoardDevice::busy_celsius)},
        {"idle_milliwatts", into(&BoardDevice::idle_milliwatts)},
        {"busy_milliwatts", into(&BoardDevice::busy_milliwatts)},
        {"clock_mhz", into(&BoardDevice::clock_mhz)},
        {"memory_clock_mhz", into(&BoardDevice::memory_clock_mhz)},
    };
    return keys;
}

using Arguments = std::map<std::string, std::string>;

Arguments read_arguments(int count, char** words) {
    Arguments given;
    for (int i = 2; i < count; ++i) {
        std::string word = words[i];
        size_t mark = word.find('=');
        std::string key = word.substr(0, mark);
        bool known = board_keys().count(key) || each_keys().count(key) || card_keys().count(key);
        if (mark == word.npos || !known) refuse("unknown key: \"" + word + "\"");
        if (!given.emplace(key, word.substr(mark + 1)).second) refuse("twice: " + key);
    }
    return given;
}

const std::string& needed(const Arguments& given, const std::string& key) {
    auto place = given.find(key);
    if (place == given.end()) refuse("missing: " + key + "=");
    return place->second;
}

void check(const BoardDevice& card) {
    bool whole = card.page != 0 && card.l3_page != 0 && card.page % 4096 == 0 &&
                 card.l3_page % 4096 == 0;
    if (!whole) refuse("page and l3_page must be multiples of 4096");
    if (card.capacity == 0 || card.capacity % card.page != 0) refuse("capacity: not whole pages");
    if (card.l3_capacity == 0 || card.l3_capacity % card.l3_page != 0) {
        refuse("l3_capacity: not whole pages");
    }
    if (card.block % card.page != 0) refuse("block: not whole pages");
}

void fill_cards(Board& board, const Arguments& given) {
    size_t cards = split(needed(given, "pci"), ',').size();
    if (cards > static_cast<size_t>(xpusim::board_devices)) refuse("too many cards");
    board.devices = static_cast<uint32_t>(cards);
    for (const auto& [key, set] : each_keys()) {
        std::vector<std::string> values = split(needed(given, key), ',');
        if (values.size() != cards) refuse(key + ": one value for each card, as pci has");
        for (size_t i = 0; i < cards; ++i) set(board.device[i], values[i]);
    }
    for (const auto& [key, set] : card_keys()) {
        for (size_t i = 0; i < cards; ++i) set(board.device[i], needed(given, key));
    }
    for (size_t i = 0; i < cards; ++i) check(board.device[i]);
}

void fill(Board& board, const Arguments& given) {
    board.magic = xpusim::board_magic;
    board.layout = xpusim::board_layout;
    board.bytes = sizeof(Board);
    for (const auto& [key, set] : board_keys()) set(board, needed(given, key));
    fill_cards(board, given);
}

// A reader sees the old board or the whole new one.
bool write(const Board& board, const std::string& path) {
    std::string draft = path + ".new";
    FILE* file = std::fopen(draft.c_str(), "wb");
    if (!file) return false;
    bool written = std::fwrite(&board, sizeof board, 1, file) == 1;
    written = std::fclose(file) == 0 && written;
    return written && std::rename(draft.c_str(), path.c_str()) == 0;
}

}  // namespace

int main(int count, char** words) {
    static Board board;  // zeroed, and too large for a stack
    if (count < 2) {
        std::fprintf(stderr, "usage: make_board PATH key=value ...\n");
        return 2;
    }
    try {
        fill(board, read_arguments(count, words));
    } catch (const std::logic_error& error) {  // what std::stoull throws is one too
        std::fprintf(stderr, "make_board: %s\n", error.what());
        return 2;
    }
    if (write(board, words[1])) return 0;
    std::perror(words[1]);
    return 1;
}
