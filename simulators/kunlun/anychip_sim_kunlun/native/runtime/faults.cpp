#include "faults.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "device.h"

namespace xpusim {

namespace {

enum class Form { at, value, bare };

struct Known {
    const char* name;
    Form form;
    const char* usage;
};

constexpr Known known[] = {
    {"oom", Form::at, "oom or oom@n"},
    {"kexception", Form::at, "kexception or kexception@n"},
    {"hang", Form::at, "hang or hang@n"},
    {"lost", Form::at, "lost or lost@n"},
    {"short_copy", Form::at, "short_copy or short_copy@n"},
    {"slow_link", Form::value, "slow_link=device:MBps"},
    {"queue_delay_us", Form::value, "queue_delay_us=n"},
    {"sick", Form::value, "sick=device"},
    {"no_event_order", Form::bare, "no_event_order"},
    {"weight_as", Form::value, "weight_as=float16, weight_as=bfloat16 or weight_as=max"},
};

// A misspelt fault would make a test pass that proves nothing, so the process ends.
[[noreturn]] void refuse(const std::string& text) {
    std::fprintf(stderr, "XPUSIM_FAULTS: cannot use \"%s\". Known faults:\n", text.c_str());
    for (const Known& each : known) std::fprintf(stderr, "  %s\n", each.usage);
    std::abort();
}

const Known* find(const std::string& name) {
    for (const Known& each : known) {
        if (name == each.name) return &each;
    }
    return nullptr;
}

uint64_t number(const std::string& text, const std::string& item) {
    if (text.empty() || text.size() > 12 || text.find_first_not_of("0123456789") != text.npos) {
        refuse(item);
    }
    return std::stoull(text);
}

int card(const std::string& text, const std::string& item) {
    constexpr uint64_t most = 9999;  // fits an int; the board says later which cards there are
    uint64_t found = number(text, item);
    if (found > most) refuse(item);
    return static_cast<int>(found);
}

using Armed = std::map<std::string, std::string>;

void arm(Armed& armed, const std::string& item) {
    size_t mark = item.find_first_of("@=");
    std::string name = item.substr(0, mark);
    std::string value = mark == item.npos ? "" : item.substr(mark + 1);
    const Known* entry = find(name);
    if (!entry || armed.count(name)) refuse(item);
    char sign = mark == item.npos ? ' ' : item[mark];
    bool fits = entry->form == Form::at      ? sign != '='
                : entry->form == Form::value ? sign == '=' && !value.empty()
                                             : sign == ' ';
    if (!fits) refuse(item);
    if (sign == '@' && number(value, item) == 0) refuse(item);
    armed[name] = value;
}

Armed parse(const char* text) {
    Armed armed;
    std::string rest = text ? text : "";
    while (!rest.empty()) {
        size_t comma = rest.find(',');
        arm(armed, rest.substr(0, comma));
        rest = comma == rest.npos ? "" : rest.substr(comma + 1);
    }
    return armed;
}

const Armed& armed_faults() {
    static const Armed* armed = new Armed(parse(std::getenv("XPUSIM_FAULTS")));
    return *armed;
}

void read_slow_link(Faults& faults, const std::string& value) {
    size_t colon = value.find(':');
    if (colon == value.npos) refuse("slow_link=" + value);
    faults.slow_device = card(value.substr(0, colon), "slow_link=" + value);
    uint64_t megabytes = number(value.substr(colon + 1), "slow_link=" + value);
    if (megabytes == 0) refuse("slow_link=" + value);
    faults.slow_bytes_second = static_cast<double>(megabytes) * 1e6;
}

}  // namespace

std::optional<std::string> fault(const char* name) {
    if (!find(name)) refuse(name);
    auto place = armed_faults().find(name);
    if (place == armed_faults().end()) return std::nullopt;
    return place->second;
}

Strike::Strike(const char* name) {
    std::optional<std::string> value = fault(name);
    armed_ = value.has_value();
    if (armed_ && !value->empty()) at_ = std::stoull(*value);
}

bool Strike::now() {
    if (!armed_) return false;
    uint64_t event = seen_.fetch_add(1) + 1;
    return at_ == 0 || event == at_;
}

Faults::Faults() {
    if (auto value = fault("slow_link")) read_slow_link(*this, *value);
    if (auto value = fault("queue_delay_us")) {
        queue_delay_us = number(*value, "queue_delay_us=" + *value);
    }
    if (auto value = fault("sick")) {
        sick_device = card(*value, "sick=" + *value);
    }
    no_event_order = fault("no_event_order").has_value();
    if (auto value = fault("weight_as")) {
        bool known_type = *value == "float16" || *value == "bfloat16" || *value == "max";
        if (!known_type) refuse("weight_as=" + *value);
    }
}

void refuse_absent_cards(uint32_t cards) {
    const std::pair<const char*, int> named[] = {{"sick", faults().sick_device},
                                                 {"slow_link", faults().slow_device}};
    for (const auto& [name, card] : named) {
        if (card < static_cast<int>(cards)) continue;
        std::fprintf(stderr, "XPUSIM_FAULTS: %s=%s: there is no card %d, the board has %u\n", name,
                     fault(name)->c_str(), card, cards);
        std::abort();
    }
}

Faults& faults() {
    static Faults* all = new Faults();
    return *all;
}

}  // namespace xpusim
