#pragma once
// Prompts of conversations, as the chat templates of known models write them. No template is
// interpreted: each is a function here.
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coshard::llama {

struct Message {
  std::string role, content;  // "system", "user" or "assistant"
};

// The text of a conversation, with what begins the assistant's answer. `name`: chatml, llama3, mistral,
// gemma or none (contents alone); "": the one that the folder's chat template (chat_template.jinja, else
// chat_template of tokenizer_config.json) is known to be by its xxh3. Encode it without the
// tokenizer's own special tokens.
// Error{BadInput}: an unknown name, or template; roles that the template refuses.
std::string chat_prompt(const std::string& folder, std::string_view name,
                        std::span<const Message> messages);

// What that template writes around contents, and a tokenizer of its model has as one id each.
std::vector<std::string> chat_markers(const std::string& folder, std::string_view name);

}  // namespace coshard::llama
