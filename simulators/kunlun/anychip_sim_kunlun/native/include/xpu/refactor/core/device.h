// Which chip generation a context runs on.
#pragma once

namespace baidu {
namespace xpu {
namespace api {

enum class DeviceType { CPU = 0, XPU1 = 1, XPU2 = 2, XPU3 = 3, XPU4 = 4 };

constexpr DeviceType kCPU = DeviceType::CPU;
constexpr DeviceType kXPU1 = DeviceType::XPU1;
constexpr DeviceType kXPU2 = DeviceType::XPU2;
constexpr DeviceType kXPU3 = DeviceType::XPU3;
constexpr DeviceType kXPU4 = DeviceType::XPU4;

struct Device {
    Device(DeviceType type = kCPU, int id = 0) : type_(type), id_(type == kCPU ? 0 : id) {}

    DeviceType type() const noexcept { return type_; }
    int id() const noexcept { return id_; }
    bool operator==(const Device& other) const noexcept {
        return type_ == other.type_ && id_ == other.id_;
    }
    bool operator!=(const Device& other) const noexcept { return !(*this == other); }

private:
    DeviceType type_;
    int id_;
};

}  // namespace api
}  // namespace xpu
}  // namespace baidu
