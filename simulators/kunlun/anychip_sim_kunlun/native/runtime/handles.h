// Opaque handles. They are numbers, not addresses: a caller that looks inside one crashes, and one
// that uses it after its end is told so.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <vector>

namespace xpusim {

template <typename T>
class Handles {
public:
    explicit Handles(uint64_t first) : next_(first), first_(first) {}

    void* add(std::shared_ptr<T> object) {
        std::unique_lock<std::shared_mutex> guard(lock_);
        next_ += 16;
        living_[next_] = std::move(object);
        return reinterpret_cast<void*>(next_);
    }

    std::shared_ptr<T> find(const void* handle) const {
        std::shared_lock<std::shared_mutex> guard(lock_);
        auto place = living_.find(reinterpret_cast<uint64_t>(handle));
        return place == living_.end() ? nullptr : place->second;
    }

    std::shared_ptr<T> remove(const void* handle) {
        std::unique_lock<std::shared_mutex> guard(lock_);
        auto place = living_.find(reinterpret_cast<uint64_t>(handle));
        if (place == living_.end()) return nullptr;
        std::shared_ptr<T> object = std::move(place->second);
        living_.erase(place);
        return object;
    }

    // Whether such a handle was given out and has been removed since.
    bool was(const void* handle) const {
        uint64_t number = reinterpret_cast<uint64_t>(handle);
        std::shared_lock<std::shared_mutex> guard(lock_);
        bool given = number > first_ && number <= next_ && (number - first_) % 16 == 0;
        return given && living_.count(number) == 0;
    }

    std::vector<std::shared_ptr<T>> all() const {
        std::shared_lock<std::shared_mutex> guard(lock_);
        std::vector<std::shared_ptr<T>> objects;
        for (const auto& [handle, object] : living_) objects.push_back(object);
        return objects;
    }

private:
    mutable std::shared_mutex lock_;
    uint64_t next_;
    const uint64_t first_;
    std::map<uint64_t, std::shared_ptr<T>> living_;
};

}  // namespace xpusim
