// Single-pass kernels for the host. They compute exactly what the torch fallbacks compute; those
// need several trips through memory where these need one.
#include <torch/extension.h>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include <cmath>
#include <cstdint>

namespace {

void check(const torch::Tensor& t, torch::ScalarType kind, const char* name) {
  TORCH_CHECK(t.device().is_cpu() && t.is_contiguous() && t.scalar_type() == kind, name,
              ": expected a contiguous host tensor of type ", toString(kind));
}

// scales[b] = max|x| / 127 and codes = round_to_even(x * (127 / max|x|)) for each block.
void quantize(const torch::Tensor& source, int64_t block, torch::Tensor scales,
              torch::Tensor codes) {
  check(source, torch::kFloat, "source");
  check(scales, torch::kFloat, "scales");
  check(codes, torch::kChar, "codes");
  TORCH_CHECK(source.numel() == scales.numel() * block && codes.numel() == source.numel(),
              "quantize: sizes do not match");
  const float* x = source.data_ptr<float>();
  float* scale = scales.data_ptr<float>();
  int8_t* code = codes.data_ptr<int8_t>();
  const float limit = INFINITY;
  for (int64_t b = 0; b < scales.numel(); ++b, x += block, code += block) {
    int32_t top = 0;  // the bits of non-negative floats are ordered like the floats, NaN on top
    for (int64_t i = 0; i < block; ++i) {
      int32_t bits;
      __builtin_memcpy(&bits, x + i, 4);
      bits &= 0x7fffffff;
      top = bits > top ? bits : top;
    }
    float peak;
    __builtin_memcpy(&peak, &top, 4);
    scale[b] = peak / 127;
    const float inverse = peak > 0 && peak <= limit ? 127 / peak : 0;
    if (!(peak < limit)) {
      for (int64_t i = 0; i < block; ++i) code[i] = 0;
      continue;
    }
    const float magic = 12582912.0f;  // adding it rounds to an integer, ties to even
    for (int64_t i = 0; i < block; ++i) {
      const float shifted = x[i] * inverse + magic;
      int32_t bits;
      __builtin_memcpy(&bits, &shifted, 4);
      code[i] = static_cast<int8_t>(bits);
    }
  }
}

// negative[i] = x[i] < 0, and the same as bit i % 8 of packed[i / 8].
void signs(const torch::Tensor& source, torch::Tensor negative, torch::Tensor packed) {
  check(source, torch::kFloat, "source");
  check(negative, torch::kBool, "negative");
  check(packed, torch::kByte, "packed");
  const int64_t n = source.numel();
  TORCH_CHECK(negative.numel() == n && packed.numel() == (n + 7) / 8, "signs: sizes do not match");
  const float* __restrict__ x = source.data_ptr<float>();
  uint8_t* __restrict__ flag = reinterpret_cast<uint8_t*>(negative.data_ptr<bool>());
  uint8_t* __restrict__ out = packed.data_ptr<uint8_t>();
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    uint64_t eights[8];
    uint8_t* one = reinterpret_cast<uint8_t*>(eights);
    for (int j = 0; j < 64; ++j) one[j] = x[i + j] < 0;
    __builtin_memcpy(flag + i, eights, 64);
    // Eight bytes of 0 or 1 become the eight bits of one byte (host order: little endian).
    for (int j = 0; j < 8; ++j) {
      out[i / 8 + j] = static_cast<uint8_t>((eights[j] * 0x0102040810204080ull) >> 56);
    }
  }
  for (; i < n; i += 8) {
    uint8_t last = 0;
    for (int64_t j = i; j < n && j < i + 8; ++j) {
      flag[j] = x[j] < 0;
      last |= flag[j] << (j - i);
    }
    out[i / 8] = last;
  }
}

// Sum of |x| in a fixed order: lane j of 1024 adds entries j, j + 1024, ... of a chunk of 2^17 one
// after the other in fp32; the lanes are folded in halves; chunks are added in fp64.
double magnitude(const torch::Tensor& source) {
  check(source, torch::kFloat, "source");
  constexpr int64_t kLanes = 1024, kChunk = 1 << 17;
  const float* x = source.data_ptr<float>();
  const int64_t n = source.numel();
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    float lane[kLanes] = {0};
    const int64_t end = begin + kChunk < n ? begin + kChunk : n;
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (int64_t j = 0; j < kLanes; ++j) lane[j] += std::fabs(x[i + j]);
    }
    for (int64_t j = 0; i + j < end; ++j) lane[j] += std::fabs(x[i + j]);
    for (int64_t half = kLanes / 2; half > 0; half /= 2) {
      for (int64_t j = 0; j < half; ++j) lane[j] += lane[j + half];
    }
    total += lane[0];
  }
  return total;
}

// wire = fp16(source * factor), to the nearest even; with subtract, source -= wire / factor.
void half(torch::Tensor source, torch::Tensor wire, double factor, bool subtract) {
  check(source, torch::kFloat, "source");
  check(wire, torch::kHalf, "wire");
  TORCH_CHECK(wire.numel() == source.numel(), "half: sizes do not match");
  float* x = source.data_ptr<float>();
  c10::Half* out = wire.data_ptr<c10::Half>();
  const float scale = static_cast<float>(factor);
  const int64_t n = source.numel();
  int64_t i = 0;
#if defined(__F16C__)
  const __m256 scales = _mm256_set1_ps(scale);
  for (; i + 8 <= n; i += 8) {
    const __m256 values = _mm256_loadu_ps(x + i);
    const __m128i rounded =
        _mm256_cvtps_ph(_mm256_mul_ps(values, scales), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), rounded);
    if (subtract) {
      const __m256 sent = _mm256_div_ps(_mm256_cvtph_ps(rounded), scales);
      _mm256_storeu_ps(x + i, _mm256_sub_ps(values, sent));
    }
  }
#endif
  for (; i < n; ++i) {
    out[i] = c10::Half(x[i] * scale);
    if (subtract) x[i] -= static_cast<float>(out[i]) / scale;
  }
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("quantize", &quantize, "Quantize blocks to int8");
  m.def("half", &half, "Scale and round to fp16");
  m.def("magnitude", &magnitude, "Sum of magnitudes");
  m.def("signs", &signs, "Signs as bools and as bits");
}
