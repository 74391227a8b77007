// The activation that a fused product applies to its result.
#pragma once

namespace baidu {
namespace xpu {
namespace api {

struct Activation_t {
    enum act_enum {
        LINEAR = 0,
        RELU = 1,
        SIGMOID = 2,
        TANH = 3,
        GELU = 4,
        LEAKY_RELU = 5,
        ELU = 6,
        EXP = 12,
        LIMIT_EXP = 13,
        HARD_SWISH = 14,
        HARD_SIGMOID = 15,
        SWISH = 16,
        RELU6 = 17,
        APPROXIMATE_GELU = 18,
        QUICK_GELU = 19,
        GELU_GRAD_PHASE1 = 20,
        MISH = 22,
        SWISH_GLU = 23,
        SWISH_GLU_GPT_FC = 24,
    };

    act_enum type;
    union {  // which one counts follows from `type`
        float leaky_alpha;
        float elu_alpha;
        float hard_sigmoid_slope;
        int exp_sqrt_cnt;
    };

    Activation_t(act_enum act) : type(act), leaky_alpha(0.0f) {}
    Activation_t(act_enum act, float value) : type(act), leaky_alpha(value) {
        if (act == LIMIT_EXP) {
            exp_sqrt_cnt = static_cast<int>(value);
        }
    }
};

}  // namespace api
}  // namespace xpu
}  // namespace baidu
