// Prints sizes and offsets of the structs of the language-model headers, as abi_llm.tsv has them.
#include <cstddef>
#include <cstdio>

#include "xft/core/param.h"
#include "xhpc/xblas/xblas_legacy_api.h"

namespace {

using namespace baidu::xpu;

using Matrix = xblas::FcFusionTensor<const float>;
using Desc = xblas::FcFusionDesc<float, float, float>;
using Epilogue = xblas::FcFusionEpilogue<float, float>;

void whole(const char* name, size_t bytes) {
    std::printf("struct\tbaidu::xpu::%s\t%zu\n", name, bytes);
}

void part(const char* name, size_t offset, const char* type) {
    std::printf("field\tbaidu::xpu::%s\toffset %zu %s\n", name, offset, type);
}

void products() {
    whole("xblas::FcFusionTensor", sizeof(Matrix));
    part("xblas::FcFusionTensor.data", offsetof(Matrix, data), "T*");
    part("xblas::FcFusionTensor.maxptr", offsetof(Matrix, maxptr), "const float*");
    part("xblas::FcFusionTensor.rows", offsetof(Matrix, rows), "int64_t");
    part("xblas::FcFusionTensor.columns", offsetof(Matrix, columns), "int64_t");
    part("xblas::FcFusionTensor.ld", offsetof(Matrix, ld), "int64_t");
    part("xblas::FcFusionTensor.trans", offsetof(Matrix, trans), "bool");
    whole("xblas::FcFusionDesc", sizeof(Desc));
    part("xblas::FcFusionDesc.alpha", offsetof(Desc, alpha), "float");
    part("xblas::FcFusionDesc.beta", offsetof(Desc, beta), "float");
    part("xblas::FcFusionDesc.flag", offsetof(Desc, flag), "int*");
    whole("xblas::FcFusionEpilogue", sizeof(Epilogue));
    part("xblas::FcFusionEpilogue.act", offsetof(Epilogue, act), "api::Activation_t");
    part("xblas::FcFusionEpilogue.bias", offsetof(Epilogue, bias), "const TBIAS*");
    part("xblas::FcFusionEpilogue.scale_x", offsetof(Epilogue, scale_x), "const TSCALE*");
    part("xblas::FcFusionEpilogue.scale_w", offsetof(Epilogue, scale_w), "const TSCALE*");
    part("xblas::FcFusionEpilogue.scale_x_mode", offsetof(Epilogue, scale_x_mode), "int");
    part("xblas::FcFusionEpilogue.scale_w_mode", offsetof(Epilogue, scale_w_mode), "int");
    part("xblas::FcFusionEpilogue.y_maxptr", offsetof(Epilogue, y_maxptr), "float*");
}

void blocks() {
    whole("xftblock::XFTContext", sizeof(xftblock::XFTContext));
    whole("xftblock::Tensor", sizeof(xftblock::Tensor));
    whole("xftblock::PageAttnParam", sizeof(xftblock::PageAttnParam));
    whole("xftblock::TransformerParam", sizeof(xftblock::TransformerParam));
    whole("xftblock::TransformerVsl", sizeof(xftblock::TransformerVsl));
}

}  // namespace

int main() {
    products();
    blocks();
}
