// Status of an operator call. Numbers of the public XDNN header; not the runtime's 7xx codes.
#pragma once

namespace baidu {
namespace xpu {
namespace api {

enum Error_t {
    SUCCESS = 0,
    INVALID_PARAM = 1,
    RUNTIME_ERROR = 2,
    NO_ENOUGH_WORKSPACE = 3,
    NOT_IMPLEMENT = 4,
};

}  // namespace api
}  // namespace xpu
}  // namespace baidu
