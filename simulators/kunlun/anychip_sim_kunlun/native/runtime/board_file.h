// Opening, locking and summing up the board file. All inline, so that each library and tool of the
// simulator that reads the board needs this header and no object of another.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "board.h"

namespace xpusim {

struct BoardUse {
    uint64_t used;
    uint64_t l3_used;
    uint64_t busy;         // nanoseconds, of the living processes
    int processes;
    bool lost;
};

// DIR/state/board, where DIR lies `up` folders above the file that holds `anchor` (an address in a
// library, or null for the running program); XPUSIM_STATE names another folder than DIR/state.
std::string board_path(const void* anchor, int up);

// Start time of a process in clock ticks, 0 where it is gone or a zombie.
uint64_t process_start(int pid);

// An open board file. Not copyable; one for each process and library is enough.
class BoardFile {
public:
    BoardFile() = default;
    ~BoardFile();
    BoardFile(const BoardFile&) = delete;
    BoardFile& operator=(const BoardFile&) = delete;

    // False with a reason in `problem` where the file is missing or is no board of this layout.
    bool open(const std::string& path);
    Board* board() const { return board_; }
    const std::string& problem() const { return problem_; }

    // Between processes and threads. Held while entries are taken, given back or summed up.
    void lock();
    void unlock();

private:
    int file_ = -1;
    Board* board_ = nullptr;
    std::string problem_;
    std::mutex inside_;
};

// All three need the lock. reclaim() frees the entries of dead processes; claim() finds or takes
// the entry of this process (null: the table is full); usage() sums up the living.
void reclaim(BoardDevice& device);
BoardProcess* claim(BoardDevice& device);
BoardUse usage(const BoardDevice& device);

namespace board_detail {

inline std::string real_path(const char* path) {
    char full[PATH_MAX];
    return realpath(path, full) ? std::string(full) : std::string(path);
}

inline std::string own_file(const void* anchor) {
    Dl_info info{};
    if (!anchor || !dladdr(anchor, &info) || !info.dli_fname) return real_path("/proc/self/exe");
    return real_path(info.dli_fname);
}

inline std::string parent(const std::string& path) {
    size_t slash = path.rfind('/');
    return slash == std::string::npos ? std::string(".") : path.substr(0, slash);
}

// Whole-file lock of the open description, so that two libraries of one process exclude each
// other too (classic record locks would not).
inline void file_lock(int file, short type) {
    struct flock range = {};
    range.l_type = type;
    range.l_whence = SEEK_SET;
    while (fcntl(file, F_OFD_SETLKW, &range) != 0) {
        if (errno == EINTR) continue;
        std::perror("simulated board: lock");  // without the lock no number could be trusted
        std::abort();
    }
}

inline bool alive(const BoardProcess& entry) {
    return entry.pid != 0 && process_start(entry.pid) == entry.started;
}

}  // namespace board_detail

inline std::string board_path(const void* anchor, int up) {
    if (const char* state = std::getenv("XPUSIM_STATE")) return std::string(state) + "/board";
    std::string folder = board_detail::own_file(anchor);
    for (int i = 0; i < up; ++i) folder = board_detail::parent(folder);
    return folder + "/state/board";
}

inline uint64_t process_start(int pid) {
    std::string path = "/proc/" + std::to_string(pid) + "/stat";
    FILE* stat = std::fopen(path.c_str(), "r");
    if (!stat) return 0;
    char line[1024];
    size_t length = std::fread(line, 1, sizeof line - 1, stat);
    std::fclose(stat);
    line[length] = '\0';
    // The command may hold spaces and brackets: fields are counted after its last bracket.
    const char* rest = std::strrchr(line, ')');
    if (!rest) return 0;
    char state = 0;
    unsigned long long start = 0;
    int read = std::sscanf(rest + 1,
                           " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
                           "%*d %*d %llu",
                           &state, &start);
    bool gone = state == 'Z' || state == 'X';
    return read == 2 && !gone ? start : 0;
}

inline BoardFile::~BoardFile() {
    if (board_) munmap(board_, sizeof(Board));
    if (file_ >= 0) close(file_);
}

inline bool BoardFile::open(const std::string& path) {
    file_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file_ < 0) {
        problem_ = path + ": " + std::strerror(errno);
        return false;
    }
    struct stat about = {};
    if (fstat(file_, &about) != 0 || about.st_size != static_cast<off_t>(sizeof(Board))) {
        problem_ = path + ": not a board of this simulator (wrong size)";
        return false;
    }
    void* view = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (view == MAP_FAILED) {
        problem_ = path + ": " + std::strerror(errno);
        return false;
    }
    Board* board = static_cast<Board*>(view);
    if (board->magic != board_magic || board->layout != board_layout ||
        board->devices > board_devices) {
        munmap(view, sizeof(Board));
        problem_ = path + ": not a board of this simulator (wrong layout)";
        return false;
    }
    board_ = board;
    return true;
}

inline void BoardFile::lock() {
    inside_.lock();
    board_detail::file_lock(file_, F_WRLCK);
}

inline void BoardFile::unlock() {
    board_detail::file_lock(file_, F_UNLCK);
    inside_.unlock();
}

inline void reclaim(BoardDevice& device) {
    for (BoardProcess& entry : device.processes) {
        if (entry.pid != 0 && !board_detail::alive(entry)) std::memset(&entry, 0, sizeof entry);
    }
}

inline BoardProcess* claim(BoardDevice& device) {
    int self = getpid();
    uint64_t started = process_start(self);
    BoardProcess* vacant = nullptr;
    for (BoardProcess& entry : device.processes) {
        if (entry.pid == self && entry.started == started) return &entry;
        if (entry.pid == 0 && !vacant) vacant = &entry;
    }
    if (!vacant) return nullptr;
    std::memset(vacant, 0, sizeof *vacant);
    vacant->started = started;
    vacant->pid = self;
    return vacant;
}

inline BoardUse usage(const BoardDevice& device) {
    BoardUse use = {};
    for (const BoardProcess& entry : device.processes) {
        if (!board_detail::alive(entry)) continue;
        use.used += __atomic_load_n(&entry.used, __ATOMIC_RELAXED);
        use.l3_used += __atomic_load_n(&entry.l3_used, __ATOMIC_RELAXED);
        use.busy += __atomic_load_n(&entry.busy, __ATOMIC_RELAXED);
        use.lost = use.lost || __atomic_load_n(&entry.lost, __ATOMIC_RELAXED) != 0;
        use.processes += 1;
    }
    return use;
}

}  // namespace xpusim
