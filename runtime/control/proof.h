#pragma once
// Mutual authentication of the two ends of a connection: each proves that it knows the job's secret
// without sending it, by HMAC-SHA256 (RFC 2104) over both ends' nonces. Any thread.
#include <string>
#include <string_view>

namespace coshard {

// 32 random hexadecimal digits.
std::string random_nonce();
// The proof by `process`, which connects, or by the end that accepts it: 64 hexadecimal digits.
enum class ProofOf : char { Connecting = 'p', Accepting = 'z' };
std::string proof_of(ProofOf who, std::string_view secret, int process,
                     std::string_view connecting_nonce, std::string_view accepting_nonce);
// Constant-time comparison.
bool equal_proofs(std::string_view one, std::string_view other);

}  // namespace coshard
