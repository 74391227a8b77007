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
#include <optional>
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

// Start time of a process in clock ticks, 0 where it is gone or a zombie. Nothing where that cannot
// be told now, as in a process that has no file descriptor left.
std::optional<uint64_t> process_start(int pid);

// An open board file. Not copyable; one for each process and library is enough.
class BoardFile {
public:
    BoardFile() = default;
    ~BoardFile();
    BoardFile(const BoardFile&) = delete;
    BoardFile& operator=(const BoardFile&) = delete;

    // False with a reason in `problem` where the file is missing or is no board of this layout, or
    // where this process cannot learn when it began.
    bool open(const std::string& path);
    Board* board() const { return board_; }
    // When this process began: read once, since /proc cannot be read later if descriptors run out.
    uint64_t started() const { return started_; }
    const std::string& problem() const { return problem_; }

    // Between processes and threads. Held while entries are taken, given back or summed up.
    void lock();
    void unlock();

private:
    int file_ = -1;
    uint64_t started_ = 0;
    Board* board_ = nullptr;
    std::string problem_;
    std::mutex inside_;
};

// All three need the lock. reclaim() frees the entries of dead processes; claim() finds or takes
// the entry of this process, which began at `started` (null: the table is full); usage() sums up
// the living.
void reclaim(BoardDevice& device);
BoardProcess* claim(BoardDevice& device, uint64_t started);
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

// A process of which nothing can be told now is taken for alive: what it holds is not given away.
inline bool alive(const BoardProcess& entry) {
    return entry.pid != 0 && process_start(entry.pid).value_or(entry.started) == entry.started;
}

// The whole of a short file of /proc; nothing, and errno, where it cannot be read.
inline std::optional<std::string> short_file(const std::string& path) {
    char text[1024];
    int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return std::nullopt;
    ssize_t length = read(file, text, sizeof text);
    int error = errno;
    close(file);
    errno = error;
    if (length < 0) return std::nullopt;
    return std::string(text, static_cast<size_t>(length));
}

}  // namespace board_detail

inline std::string board_path(const void* anchor, int up) {
    if (const char* state = std::getenv("XPUSIM_STATE")) return std::string(state) + "/board";
    std::string folder = board_detail::own_file(anchor);
    for (int i = 0; i < up; ++i) folder = board_detail::parent(folder);
    return folder + "/state/board";
}

inline std::optional<uint64_t> process_start(int pid) {
    auto line = board_detail::short_file("/proc/" + std::to_string(pid) + "/stat");
    bool is_gone = !line && (errno == ENOENT || errno == ESRCH);
    if (is_gone) return 0;
    // The command may hold spaces and brackets: fields are counted after its last bracket.
    const char* rest = line ? std::strrchr(line->c_str(), ')') : nullptr;
    if (!rest) return std::nullopt;
    char state = 0;
    unsigned long long start = 0;
    int read = std::sscanf(rest + 1,
                           " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
                           "%*d %*d %llu",
                           &state, &start);
    if (read != 2) return std::nullopt;
    return state == 'Z' || state == 'X' ? 0 : start;
}

inline BoardFile::~BoardFile() {
    if (board_) munmap(board_, sizeof(Board));
    if (file_ >= 0) close(file_);
}

inline bool BoardFile::open(const std::string& path) {
    started_ = process_start(getpid()).value_or(0);
    if (started_ == 0) {
        problem_ = "/proc does not say when this process began: " + std::string(strerror(errno));
        return false;
    }
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

inline BoardProcess* claim(BoardDevice& device, uint64_t started) {
    int self = getpid();
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
