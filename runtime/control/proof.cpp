#include "runtime/control/proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <array>
#include <span>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

std::string hex_of(std::span<const unsigned char> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

}  // namespace

std::string random_nonce() {
  std::array<unsigned char, 16> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1)
    fail(ErrorKind::CommFailed, "OpenSSL has no random bytes");
  return hex_of(bytes);
}

std::string proof_of(ProofOf who, std::string_view secret, int process,
                     std::string_view connecting_nonce, std::string_view accepting_nonce) {
  const std::string text = str_cat("coshard 1 ", static_cast<char>(who), ' ', process, ' ',
                                   connecting_nonce, ' ', accepting_nonce);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  if (HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), bytes, text.size(),
           digest.data(), &size) == nullptr)
    fail(ErrorKind::CommFailed, "OpenSSL has no HMAC-SHA256");
  return hex_of(std::span(digest).first(size));
}

bool equal_proofs(std::string_view one, std::string_view other) {
  return one.size() == other.size() && CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace coshard
