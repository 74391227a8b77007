// FastDeploy's check around a block's status: says where and ends by exception.
#pragma once

#include <stdexcept>
#include <string>

#define XFTBLOCK_CHECK_EQ(left, right)                                                  \
    do {                                                                                \
        if ((left) != (right)) {                                                        \
            throw std::runtime_error(std::string(__FILE__) + ":" +                      \
                                     std::to_string(__LINE__) + ": " #left " != " #right); \
        }                                                                               \
    } while (false)
