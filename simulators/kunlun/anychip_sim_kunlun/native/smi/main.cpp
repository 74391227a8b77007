// xpu_smi: what the simulated cards say about themselves.
#include <getopt.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "smi/card.h"

namespace {

using Print = void (*)(const smi::Machine&);

struct Wish {
    Print print = smi::print_table;
    std::string id;
    int status = -1;  // of the program, where there is nothing to print
};

constexpr const char* help =
    "xpu_smi of a simulated Kunlun SDK\n"
    "usage: xpu_smi [-m | -q | -L] [-i INDEX]\n"
    "  -m, --machine-readable  one line a card, 32 fields\n"
    "  -q, --query             all about each card\n"
    "  -L, --list-xpus         the cards\n"
    "  -i, --id=INDEX          this card alone\n"
    "  -h, --help              this text\n"
    "The vendor's other options are not simulated, and refused.\n";

const option options[] = {
    {"machine-readable", no_argument, nullptr, 'm'}, {"query", no_argument, nullptr, 'q'},
    {"list-xpus", no_argument, nullptr, 'L'},        {"id", required_argument, nullptr, 'i'},
    {"help", no_argument, nullptr, 'h'},             {nullptr, 0, nullptr, 0},
};

void apply(int letter, Wish& wish) {
    switch (letter) {
        case 'm': wish.print = smi::print_machine_readable; break;
        case 'q': wish.print = smi::print_query; break;
        case 'L': wish.print = smi::print_list; break;
        case 'i': wish.id = optarg; break;
        case 'h':
            std::fputs(help, stdout);
            wish.status = 0;
            break;
        default: wish.status = 2;  // getopt has said what is wrong
    }
}

Wish read(int count, char** words) {
    Wish wish;
    while (wish.status < 0) {
        int letter = getopt_long(count, words, "mqLi:h", options, nullptr);
        if (letter == -1) break;
        apply(letter, wish);
    }
    if (wish.status < 0 && optind < count) {
        std::fprintf(stderr, "xpu_smi: \"%s\" is not simulated\n", words[optind]);
        wish.status = 2;
    }
    return wish;
}

// Leaves one card, named by its index as the tool counts; false where there is none.
bool choose(const std::string& id, smi::Machine& machine) {
    char* rest = nullptr;
    unsigned long index = std::strtoul(id.c_str(), &rest, 10);
    if (id.empty() || *rest != '\0' || index >= machine.cards.size()) {
        std::fprintf(stderr, "xpu_smi: there is no XPU \"%s\"\n", id.c_str());
        return false;
    }
    machine.cards = {machine.cards[index]};
    return true;
}

}  // namespace

int main(int count, char** words) {
    Wish wish = read(count, words);
    if (wish.status >= 0) return wish.status;
    smi::Machine machine;
    // Like the vendor's tool, it prints nothing at all where the driver is missing. That it then
    // ends with 0 is a guess: the harder case for whoever reads it.
    if (!smi::read_machine(machine)) return 0;
    if (!wish.id.empty() && !choose(wish.id, machine)) return 1;
    wish.print(machine);
    return 0;
}
